#!/bin/sh
# Start a master, a worker and a Spark Connect server on this machine, loopback only.
#
#   SPARK_HOME=/opt/spark deploy/spark/start.sh FOLDER
#
# FOLDER is made, for its owner alone: secrets, logs, process numbers, and the blocks of private rows while runs last.
# SPARK_MASTER_PORT (7077) and SPARK_CONNECT_PORT (15002) choose other ports. Prints the URL for `cluster:`.
set -eu
umask 077
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
chmod 700 "$1"
folder=$(cd "$1" && pwd)
if [ -f "$folder/connect.pid" ]; then
    echo "$folder: a cluster runs here, or was not stopped; stop.sh stops it" >&2
    exit 1
fi
port=${SPARK_CONNECT_PORT:-15002}
master=spark://127.0.0.1:${SPARK_MASTER_PORT:-7077}
mkdir -p "$folder/blocks" "$folder/work"
for name in token secret; do
    [ -s "$folder/$name" ] || od -An -N32 -tx1 /dev/urandom | tr -d ' \n' > "$folder/$name"
done
{
    cat "$here/spark-defaults.conf"
    echo "spark.authenticate.secret $(cat "$folder/secret")"
    echo "spark.connect.authenticate.token $(cat "$folder/token")"
    echo "spark.connect.grpc.binding.port $port"
    echo "spark.local.dir $folder/blocks"
    echo "spark.sql.warehouse.dir $folder/warehouse"
} > "$folder/spark-defaults.conf"
export SPARK_CONF_DIR="$folder" SPARK_LOCAL_IP=127.0.0.1 SPARK_LOCAL_HOSTNAME=127.0.0.1 SPARK_LOCAL_DIRS="$folder/blocks"
export SPARK_NO_DAEMONIZE=1 SPARK_DAEMON_MEMORY=512m
run() { # NAME COMMAND..: in the background; its number goes to NAME.pid
    name=$1
    shift
    : > "$folder/$name.log"
    nohup "$@" > "$folder/$name.log" 2>&1 &
    echo $! > "$folder/$name.pid"
}
class="$SPARK_HOME/bin/spark-class"
run master "$class" org.apache.spark.deploy.master.Master --host 127.0.0.1 --port "${master##*:}" --webui-port 0 \
    --properties-file "$folder/spark-defaults.conf"
run worker "$class" org.apache.spark.deploy.worker.Worker --host 127.0.0.1 --webui-port 0 --work-dir "$folder/work" \
    --properties-file "$folder/spark-defaults.conf" "$master"
run connect "$SPARK_HOME/bin/spark-submit" --master "$master" --properties-file "$folder/spark-defaults.conf" \
    --class org.apache.spark.sql.connect.service.SparkConnectServer spark-internal
waited=0
until grep -q "Spark Connect server started" "$folder/connect.log"; do
    waited=$((waited + 1))
    if [ "$waited" -gt 120 ] || ! kill -0 "$(cat "$folder/connect.pid")" 2> /dev/null; then
        echo "the server did not start; see $folder/connect.log" >&2
        exit 1
    fi
    sleep 1
done
# To a host of this name PySpark sends the token without TLS, which a loopback does not need.
echo "sc://localhost:$port/;token=\${SPARK_TOKEN}   # SPARK_TOKEN is in $folder/token"
