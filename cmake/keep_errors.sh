#!/bin/sh
# keep_errors.sh FILE COMMAND...: runs the command, with what it writes to stderr in FILE; shows that where it fails.
file=$1
shift
"$@" 2>"$file" && exit 0
status=$?
cat "$file" >&2
exit $status
