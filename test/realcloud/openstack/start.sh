#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Starts an OpenStack control plane of Debian's packages on the loopback address,
# with its files in the folder $1: MariaDB, RabbitMQ, memcached, Keystone, Glance,
# Placement, Nova with the fake driver, Neutron with a mechanism driver that binds
# every port (bind/) and no agents. It returns when all of them answer, and what
# it started runs on until the namespace of processes ends.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$1 etc=$1/etc log=$1/log state=$1/state
mkdir -p "$etc"/{keystone/fernet,keystone/credential,nova,neutron,glance,placement} "$log" "$state"/{nova,neutron,glance/images} "$dir"/{mysql,rabbit}
chmod 755 "$dir"
ip link set lo up
export TMPDIR=/tmp # a folder that all users can write
export PYTHONPATH=$here/bind PYTHONDONTWRITEBYTECODE=1 ERL_EPMD_ADDRESS=127.0.0.1

# run NAME COMMAND starts a daemon.
run() {
  local name=$1
  shift
  "$@" >"$log/$name.out" 2>&1 </dev/null &
}

# answers WHAT SECONDS COMMAND waits until the command succeeds.
answers() {
  local what=$1 end=$((SECONDS + $2))
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { echo "openstack: $what does not answer; see $log" >&2; tail -n 5 "$log"/*.out >&2; exit 1; }
    sleep 0.5
  done
}

# step NAME COMMAND runs a command and shows its output only when it fails.
step() {
  local name=$1
  shift
  "$@" >"$log/$name.step" 2>&1 || { echo "openstack: $name failed:" >&2; tail -n 20 "$log/$name.step" >&2; exit 1; }
}

database() { echo "connection = mysql+pymysql://os:os@127.0.0.1/$1"; }

# login USER is a service's own login at Keystone.
login() {
  cat <<END
auth_url = http://127.0.0.1:5000/v3
auth_type = password
project_domain_name = Default
user_domain_name = Default
project_name = service
region_name = RegionOne
username = $1
password = service
END
}

tokens() {
  echo "[keystone_authtoken]"
  echo "www_authenticate_uri = http://127.0.0.1:5000/"
  echo "memcached_servers = 127.0.0.1:11211"
  login "$1"
}

configure() {
  cat >"$etc/keystone/keystone.conf" <<END
[database]
$(database keystone)
[token]
provider = fernet
[fernet_tokens]
key_repository = $etc/keystone/fernet
[credential]
key_repository = $etc/keystone/credential
END
  cat >"$etc/glance/glance.conf" <<END
[DEFAULT]
bind_host = 127.0.0.1
workers = 1
[database]
$(database glance)
[glance_store]
stores = file
default_store = file
filesystem_store_datadir = $state/glance/images
[paste_deploy]
flavor = keystone
config_file = /usr/share/glance-common/glance-api-paste.ini
$(tokens glance)
END
  cat >"$etc/placement/placement.conf" <<END
[api]
auth_strategy = keystone
[placement_database]
$(database placement)
$(tokens placement)
END
  cat >"$etc/nova/nova.conf" <<END
[DEFAULT]
my_ip = 127.0.0.1
host = fake1
state_path = $state/nova
transport_url = rabbit://guest:guest@127.0.0.1:5672/
compute_driver = fake.FakeDriver
enabled_apis = osapi_compute
osapi_compute_listen = 127.0.0.1
osapi_compute_workers = 2
vif_plugging_is_fatal = false
vif_plugging_timeout = 0
[api]
auth_strategy = keystone
[api_database]
$(database nova_api)
[database]
$(database nova)
[conductor]
workers = 1
[scheduler]
workers = 1
discover_hosts_in_cells_interval = 5
[glance]
api_servers = http://127.0.0.1:9292
[oslo_concurrency]
lock_path = $state/nova/lock
[vnc]
enabled = false
[neutron]
$(login neutron)
[placement]
$(login placement)
$(tokens nova)
END
  cat >"$etc/neutron/neutron.conf" <<END
[DEFAULT]
bind_host = 127.0.0.1
state_path = $state/neutron
core_plugin = ml2
service_plugins = router
api_workers = 2
rpc_workers = 1
transport_url = rabbit://guest:guest@127.0.0.1:5672/
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
api_paste_config = /etc/neutron/api-paste.ini
[database]
$(database neutron)
[oslo_concurrency]
lock_path = $state/neutron/lock
[ml2]
type_drivers = local
tenant_network_types = local
mechanism_drivers = outrigger_bind
extension_drivers = port_security
[securitygroup]
enable_security_group = true
$(tokens neutron)
END
}

sql() { mariadb --no-defaults -uroot -S "$dir/mysql/sock" "$@"; }

base() {
  chown mysql "$dir/mysql"
  step mariadb-install mariadb-install-db --no-defaults --datadir="$dir/mysql" --user=mysql --auth-root-authentication-method=normal
  run mariadb mariadbd --no-defaults --user=mysql --datadir="$dir/mysql" --socket="$dir/mysql/sock" --bind-address=127.0.0.1 \
    --innodb-flush-log-at-trx-commit=0 --innodb-flush-method=nosync --skip-log-bin --max-connections=600 --pid-file="$dir/mysql/pid"
  run memcached memcached -u nobody -l 127.0.0.1 -m 64
  chown rabbitmq "$dir/rabbit"
  echo "listeners.tcp.default = 127.0.0.1:5672" >"$dir/rabbit/rabbitmq.conf"
  run rabbitmq setpriv --reuid=rabbitmq --regid=rabbitmq --clear-groups env HOME="$dir/rabbit" RABBITMQ_NODENAME=rabbit@localhost RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 \
    RABBITMQ_MNESIA_BASE="$dir/rabbit/mnesia" RABBITMQ_LOG_BASE="$dir/rabbit/log" RABBITMQ_CONFIG_FILE="$dir/rabbit/rabbitmq.conf" \
    RABBITMQ_ENABLED_PLUGINS_FILE="$dir/rabbit/plugins" /usr/lib/rabbitmq/bin/rabbitmq-server
  answers MariaDB 120 sql -e "select 1"
  local name
  for name in keystone glance placement nova nova_api nova_cell0 neutron; do
    sql -e "create database $name character set utf8; grant all on $name.* to os@'127.0.0.1' identified by 'os'; grant all on $name.* to os@localhost identified by 'os'"
  done
}

nova_schema() {
  local config=(--config-file "$etc/nova/nova.conf")
  nova-manage "${config[@]}" api_db sync
  nova-manage "${config[@]}" cell_v2 map_cell0 --database_connection mysql+pymysql://os:os@127.0.0.1/nova_cell0
  nova-manage "${config[@]}" db sync
  nova-manage "${config[@]}" cell_v2 create_cell --name cell1
}

keystone_schema() {
  local config=(--config-file "$etc/keystone/keystone.conf")
  keystone-manage "${config[@]}" db_sync
  keystone-manage "${config[@]}" fernet_setup --keystone-user root --keystone-group root
  keystone-manage "${config[@]}" credential_setup --keystone-user root --keystone-group root
  keystone-manage "${config[@]}" bootstrap --bootstrap-password admin --bootstrap-region-id RegionOne \
    --bootstrap-admin-url http://127.0.0.1:5000/v3 --bootstrap-internal-url http://127.0.0.1:5000/v3 --bootstrap-public-url http://127.0.0.1:5000/v3
}

schemas() {
  local pids=() pid
  step keystone-db keystone_schema & pids+=($!)
  step placement-db placement-manage --config-file "$etc/placement/placement.conf" db sync & pids+=($!)
  step glance-db glance-manage --config-file "$etc/glance/glance.conf" db_sync & pids+=($!)
  step neutron-db neutron-db-manage --config-file "$etc/neutron/neutron.conf" upgrade heads & pids+=($!)
  step nova-db nova_schema & pids+=($!)
  for pid in "${pids[@]}"; do wait "$pid"; done
}

# web NAME PORT FILE serves a WSGI application.
web() {
  run "$1" uwsgi_python3 --master --need-app --lazy-apps --enable-threads --die-on-term --buffer-size 65535 --add-header "Connection: close" --processes 2 --http-socket "127.0.0.1:$2" --wsgi-file "$3"
}

services() {
  local nova=(--config-file "$etc/nova/nova.conf")
  answers RabbitMQ 180 bash -c 'exec 3<>/dev/tcp/127.0.0.1/5672'
  OS_KEYSTONE_CONFIG_DIR=$etc/keystone OS_KEYSTONE_CONFIG_FILES=keystone.conf web keystone 5000 /usr/bin/keystone-wsgi-public
  OS_PLACEMENT_CONFIG_DIR=$etc/placement web placement 8778 /usr/bin/placement-api
  run glance glance-api --config-file "$etc/glance/glance.conf"
  run neutron neutron-server --config-file "$etc/neutron/neutron.conf"
  run nova-api nova-api "${nova[@]}"
  local port
  for port in 5000 8778 9292 9696 8774; do
    answers "port $port" 300 curl -s -o /dev/null "http://127.0.0.1:$port/"
  done
}

case ${2:-all} in
all)
  configure
  base
  schemas
  services
  ;;
compute) # once Keystone knows the services: these ask Placement when they start
  run nova-conductor nova-conductor --config-file "$etc/nova/nova.conf"
  run nova-scheduler nova-scheduler --config-file "$etc/nova/nova.conf"
  run nova-compute nova-compute --config-file "$etc/nova/nova.conf"
  ;;
esac
echo "openstack: $SECONDS s"
