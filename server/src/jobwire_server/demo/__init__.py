"""The demo: a folder of text is indexed by two workers, one of which is killed, and nothing is lost.

`python -m jobwire_server.demo [FOLDER] [--json]`. Every part is a process of its own and speaks through the client that
everybody uses: the server on its embedded engine, the workers (`indexer.py`), and this one, which submits, looks on,
kills and gathers (`run.py`).
"""
