# SPDX-License-Identifier: Apache-2.0
#
# A client that is not ours: Apache Libcloud. It logs in as a service account,
# looks around, makes instances, lists, shows, stops, starts and deletes them,
# and meets errors.
import sys

import libcloud.security
from libcloud.common import google
from libcloud.compute.providers import get_driver
from libcloud.compute.types import NodeState, Provider

url, ca, email, key, project, zone, image, network, subnetwork = sys.argv[1:]
libcloud.security.CA_CERTS_PATH = ca
google.GoogleServiceAcctAuthConnection.base_url = google.GoogleBaseConnection.base_url = url
google.GoogleBaseConnection.poll_interval = 0.01


def refused(error, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except error:
        return
    raise AssertionError(f"{error} was expected")


gce = get_driver(Provider.GCE)(email, key, project=project, datacenter=zone, credential_file=key + ".token", auth_type="SA")
assert [z.name for z in gce.ex_list_zones()][0] == zone
size = gce.ex_get_size("e2-medium")
assert (size.ram, size.extra["guestCpus"]) == (4096, 2), size
podvm = gce.ex_get_image(image)
settings = dict(size=size, image=podvm, ex_network=gce.ex_get_network(network), ex_subnetwork=gce.ex_get_subnetwork(subnetwork),
                ex_labels={"by": "libcloud"}, ex_metadata={"user-data": "#cloud-config\n"}, ex_disk_type="pd-ssd", ex_disk_size=10)
refused(google.InvalidRequestError, gce.create_node, "UPPER", **settings)
made = gce.create_node("by-libcloud", **settings)
refused(google.ResourceExistsError, gce.create_node, "by-libcloud", **settings)
shown = gce.ex_get_node("by-libcloud")
assert shown.id == made.id and shown.state == NodeState.RUNNING and shown.private_ips and shown.public_ips, shown
assert shown.extra["labels"] == {"by": "libcloud"} and shown.size == "e2-medium" and shown.image == image, shown.extra
others = [gce.create_node(f"other-{n}", **settings) for n in range(4)]
assert {n.id for n in gce.list_nodes()} == {n.id for n in [made] + others}

assert gce.ex_stop_node(shown) and gce.ex_get_node("by-libcloud").state == NodeState.STOPPED
assert gce.ex_start_node(shown) and gce.ex_get_node("by-libcloud").state == NodeState.RUNNING
assert "Booting" in gce.ex_get_serial_output(shown)
for node in [made] + others:
    assert gce.destroy_node(node)
assert not gce.list_nodes()
refused(google.ResourceNotFoundError, gce.ex_get_node, "by-libcloud")
print("ok")
