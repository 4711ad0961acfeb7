"""The events of an application, for those who read them, and a gate against breaking a reader.

`entries` lists declared classes and what handles them. `event_form` describes one for comparison; `schema_files` keeps
such descriptions as JSON Schema in a folder. `json_schema` reads schemas, `misfits` finds values of one that do not fit
another, `comparison` makes changes of misfits, and says whom they break. `asyncapi` and `page` are documents for other
teams. Nothing here needs a database.
"""
