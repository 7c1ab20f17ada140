"""When: pure rules of time. Every instant that passes through here is an argument; nothing asks a clock."""
