"""Door 1: HTTP. A handler parses, calls the store, and renders; the modules beside it do one of these each.

app         the application and its server
door        who may knock: Host, Origin, content type
body        a request's body and query as checked values; refusals by field
job_fields  a job's definition from its fields; aliases and names of later features in `vocabulary`
decide      what an edit, a pause or a resume does to a job: pure
render      answers as JSON
problem     errors as application/problem+json
openapi     the contract, for machines
pages/      the status page
"""
