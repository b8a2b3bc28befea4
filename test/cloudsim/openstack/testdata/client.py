# SPDX-License-Identifier: Apache-2.0
#
# A client that is not ours: Apache Libcloud. It logs in, looks around, makes
# servers on a network and on a port of their own, lists, shows, stops, starts
# and deletes them, and meets errors.
import sys
import time

import libcloud.common.types
import libcloud.security
from libcloud.common.exceptions import BaseHTTPError
from libcloud.compute.providers import get_driver
from libcloud.compute.types import NodeState, Provider

url, ca, user, password, domain, project, region, image, network, group, outside, key = sys.argv[1:]
libcloud.security.CA_CERTS_PATH = ca


def cloud(secret):
    return get_driver(Provider.OPENSTACK)(
        user, secret, api_version="2.2", ex_force_auth_url=url, ex_force_auth_version="3.x_password",
        ex_domain_name=domain, ex_tenant_name=project, ex_tenant_domain_id="default", ex_force_service_region=region)


def refused(status, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except BaseHTTPError as error:
        assert error.code == status, error
        return
    raise AssertionError(f"{status} was expected")


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited for a minute"
        time.sleep(0.01)


nova = cloud(password)
sizes = nova.list_sizes()
assert sizes[0].ram == 2048, sizes
nets = {n.id: n for n in nova.ex_list_networks()}
assert nets[network].name == "pods" and outside in nets, nets
podvm = next(i for i in nova.list_images() if i.id == image)
assert nova.get_image(image).name == podvm.name
secgroup = next(g for g in nova.ex_list_security_groups() if g.id == group)

settings = dict(image=podvm, size=sizes[1], networks=[nets[network]], ex_keyname=key, ex_userdata="#cloud-config\n",
                ex_config_drive=True, ex_metadata={"by": "libcloud"}, ex_security_groups=[secgroup], ex_availability_zone="nova-b")
refused(400, nova.create_node, name="big", **{**settings, "ex_userdata": "x" * 65536})
refused(400, nova.create_node, name="nowhere", **{**settings, "ex_availability_zone": "nova-z"})
made = nova.create_node(name="by-libcloud", **settings)
until(lambda: nova.ex_get_node_details(made.id).state == NodeState.RUNNING)
shown = nova.ex_get_node_details(made.id)
assert shown.name == "by-libcloud" and len(shown.private_ips) == 1, shown
assert shown.extra["metadata"] == {"by": "libcloud"} and shown.extra["flavorId"] == sizes[1].id, shown.extra
assert shown.extra["imageId"] == image and shown.extra["availability_zone"] == "nova-b" and shown.extra["key_name"] == key, shown.extra
others = [nova.create_node(name=f"other-{n}", **settings) for n in range(4)]
assert {n.id for n in nova.list_nodes()} == {n.id for n in [made] + others}

ports = [p for p in nova.ex_list_ports() if p.extra["device_id"] == made.id]
assert len(ports) == 1 and ports[0].extra["fixed_ips"][0]["ip_address"] == shown.private_ips[0], ports

until(lambda: nova.ex_get_node_details(made.id).extra["task_state"] is None)
nova.ex_stop_node(shown)
until(lambda: nova.ex_get_node_details(made.id).state == NodeState.STOPPED)
refused(409, nova.ex_stop_node, shown)
nova.ex_start_node(shown)
until(lambda: nova.ex_get_node_details(made.id).state == NodeState.RUNNING)
assert "Booting" in nova.ex_get_console_output(shown, 10)["output"]

for node in [made] + others:
    assert nova.destroy_node(node)
until(lambda: not nova.list_nodes())
assert nova.ex_get_node_details(made.id) is None
assert not nova.ex_list_ports()

try:
    cloud("wrong").list_nodes()
    raise AssertionError("a wrong password is right")
except libcloud.common.types.InvalidCredsError:
    pass
print("ok")
