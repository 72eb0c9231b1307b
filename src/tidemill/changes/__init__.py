"""Changes: updates and deletes of streams, deferred until rows are read (document 000 §III-B).

``model`` is what a change says, as data; ``runs`` says which changes can be looked at together;
``analysis`` asks the ``rules`` which of them concern a reader, who says what is ``needed``;
``rewriting`` writes them into the SQL of a scan, and ``resolving`` finds the rows that they touch,
for ``patching`` them. No room above is known here.
"""
