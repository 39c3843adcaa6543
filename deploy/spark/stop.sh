#!/bin/sh
# Stop what start.sh has started, and delete what it kept: deploy/spark/stop.sh FOLDER
set -eu
folder=$1
for name in connect worker master; do
    [ -f "$folder/$name.pid" ] || continue
    number=$(cat "$folder/$name.pid")
    kill "$number" 2> /dev/null || true
    waited=0
    while kill -0 "$number" 2> /dev/null; do
        waited=$((waited + 1))
        [ "$waited" -gt 30 ] && kill -9 "$number" 2> /dev/null
        sleep 1
    done
    rm -f "$folder/$name.pid"
done
rm -rf "$folder/blocks" "$folder/work" "$folder/warehouse"
