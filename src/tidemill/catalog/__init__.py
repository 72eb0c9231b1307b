"""What exists, and since when: the only transactional store of a warehouse.

``store`` is the door; ``model`` is what it gives; ``owner`` keeps a second process out.
"""
