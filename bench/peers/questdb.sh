#!/usr/bin/env bash
# Fetches QuestDB's jar once from Maven Central. Says why it cannot where it cannot.
# usage: questdb.sh FOLDER
set -euo pipefail
version=9.3.1
folder=$1
[ -e "$folder/questdb.jar" ] && exit 0
skip() { echo "questdb: $1; compared without it" >&2; exit 0; }
command -v java >/dev/null || skip "java is missing"
command -v mvn >/dev/null || skip "mvn is missing"
mkdir -p "$folder"
mvn -q -B dependency:copy -Dartifact="org.questdb:questdb:$version" -DoutputDirectory="$folder" \
  >"$folder/fetch.log" 2>&1 || skip "its jar cannot be had (see $folder/fetch.log)"
mv "$folder/questdb-$version.jar" "$folder/questdb.jar"
