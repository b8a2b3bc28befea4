# SPDX-License-Identifier: Apache-2.0
#
# A client that is not ours: Apache Libcloud. It makes, lists, shows, stops,
# starts and deletes instances, and meets errors.
import sys
import time

import libcloud.security
from libcloud.common.exceptions import BaseHTTPError
from libcloud.compute.drivers import ecs
from libcloud.compute.providers import get_driver
from libcloud.compute.types import NodeState, Provider

url, ca, key, secret, region, image, vswitch, group, pair = sys.argv[1:]
libcloud.security.CA_CERTS_PATH = ca
ecs.ECSConnection.base_url = url
ecs.ECSDriver._wait_until_state.__defaults__ = (0.01, 60)  # pause and patience in seconds


def cloud(with_secret):
    return get_driver(Provider.ALIYUN_ECS)(key, with_secret, region=region)


def refused(code, call, *arguments):
    try:
        call(*arguments)
    except BaseHTTPError as error:
        assert code in str(error), error
        return
    raise AssertionError(f"{code} was expected")


driver = cloud(secret)
size = next(s for s in driver.list_sizes() if s.extra["cpu_core_count"] == 2)
assert size.ram == 2, size  # Libcloud leaves it in GiB
podvm = next(i for i in driver.list_images(ex_image_ids=[image]))
assert podvm.id == image


def run(name, **more):
    """Libcloud has CreateInstance, which is the older call beside RunInstances."""
    parameters = {
        "Action": "RunInstances", "RegionId": region, "ImageId": podvm.id, "InstanceType": size.id, "InstanceName": name, "VSwitchId": vswitch,
        "SecurityGroupIds.1": group, "SystemDisk.Category": "cloud_essd", "SystemDisk.Size": 40, "KeyPairName": pair,
        "Tag.1.Key": "by", "Tag.1.Value": "libcloud & \u00fc", **more}
    answer = driver.connection.request("/", parameters).object
    return answer.findtext("InstanceIdSets/InstanceIdSet")


refused("InvalidVSwitchId.NotFound", lambda: run("nowhere", VSwitchId="vsw-0"))
refused("InvalidParameter", lambda: run("wrong", Colour="blue"))
made = run("by-libcloud", ClientToken="from-libcloud")
assert run("by-libcloud", ClientToken="from-libcloud") == made
refused("IdempotentParameterMismatch", lambda: run("other", ClientToken="from-libcloud"))


def show():
    return driver.list_nodes(ex_node_ids=[made])[0]


deadline = time.monotonic() + 60
while show().state != NodeState.RUNNING and time.monotonic() < deadline:
    time.sleep(0.01)
shown = show()
assert shown.name == "by-libcloud" and shown.state == NodeState.RUNNING, shown
assert shown.extra["vpc_attributes"]["vswitch_id"] == vswitch and shown.extra["vpc_attributes"]["private_ip_address"], shown.extra
others = [run(f"other-{n}") for n in range(12)]
listed = driver.list_nodes()
assert {n.id for n in listed} == {made, *others}, listed
assert [n.id for n in driver.list_nodes(ex_filters={"InstanceName": "by-*"})] == [made]
assert driver.stop_node(shown) and show().state == NodeState.STOPPED
assert driver.start_node(shown) and show().state == NodeState.RUNNING
for node in listed:
    driver._wait_until_state([node], NodeState.RUNNING)
    assert driver.destroy_node(node)
deadline = time.monotonic() + 60
while driver.list_nodes() and time.monotonic() < deadline:
    time.sleep(0.01)
refused("InvalidInstanceId.NotFound", driver.stop_node, shown)
refused("SignatureDoesNotMatch", cloud("wrong").list_nodes)
print("ok")
