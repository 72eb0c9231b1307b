"""Servers: how other processes reach a warehouse that this process owns.

``wire`` is the protocol, ``local`` the server on a Unix domain socket, ``remote`` its client,
which has the same surface as the database itself.
"""
