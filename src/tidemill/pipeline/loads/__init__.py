"""Loads: files of others on their way into a table, each of them once.

``loads`` is what COPY and sources ask, ``environment`` what a load needs of the warehouse,
``appending`` the short way of files that are small, ``loaded`` the rule by which a file is known.
"""
