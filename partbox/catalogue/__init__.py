"""The catalogue of an application's events, and a check that changed event classes break no reader.

`entries` lists the declared classes and their handlers. `event_form` describes a class for comparison, and
`schema_files` stores such descriptions as JSON Schema in a folder. `json_schema` reads schemas, `misfits` finds values
of one schema that do not fit another, and `comparison` derives changes from misfits and says which readers they break.
`asyncapi` and `page` produce documents for other teams. Nothing here needs a database."""
