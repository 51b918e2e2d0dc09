"""Stands for setuptools where pip is to fetch an archive of sources whose build would take hours."""
