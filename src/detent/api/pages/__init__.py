"""The status page: jobs, recent executions and next fires, rendered here, with no script needed."""
