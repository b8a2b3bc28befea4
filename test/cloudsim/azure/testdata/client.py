# SPDX-License-Identifier: Apache-2.0
#
# A client that is not ours: Microsoft's for Python. It logs in, makes virtual
# machines, lists, shows, stops, starts and deletes them, and meets errors.
import collections
import os
import sys
import time

import msal
from azure.core.exceptions import HttpResponseError
from azure.mgmt.compute.v2022_08_01 import ComputeManagementClient, models

url, ca, tenant, application, secret, scope, subscription, group, region, subnet, nsg, image = sys.argv[1:]
os.environ["REQUESTS_CA_BUNDLE"] = ca


class Credential:
    """What azure-identity does, by the library that it stands on."""

    def __init__(self, password):
        self.app = msal.ConfidentialClientApplication(
            application, client_credential=password, authority=f"{url}/{tenant}", validate_authority=False, instance_discovery=False)

    def get_token(self, *scopes, **_):
        answer = self.app.acquire_token_for_client(list(scopes))
        if "access_token" not in answer:
            raise PermissionError(answer["error"] + ": " + answer["error_description"])
        return collections.namedtuple("Token", "token expires_on")(answer["access_token"], int(time.time()) + answer["expires_in"])


def cloud(password):
    return ComputeManagementClient(
        Credential(password), subscription, base_url=url, credential_scopes=[scope], connection_verify=ca, polling_interval=0.01)


def refused(code, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except HttpResponseError as error:
        assert error.error.code == code, error
        return
    raise AssertionError(f"{code} was expected")


vms = cloud(secret).virtual_machines


def model(size):
    return models.VirtualMachine(
        location=region,
        tags={"by": "azure-mgmt-compute"},
        hardware_profile=models.HardwareProfile(vm_size=size),
        storage_profile=models.StorageProfile(
            image_reference=models.ImageReference(id=image),
            os_disk=models.OSDisk(
                create_option="FromImage", delete_option="Delete", managed_disk=models.ManagedDiskParameters(storage_account_type="Premium_LRS")),
        ),
        os_profile=models.OSProfile(computer_name="by-python", admin_username="azureuser", admin_password="Not-for-long-1"),
        network_profile=models.NetworkProfile(
            network_api_version="2020-11-01",
            network_interface_configurations=[models.VirtualMachineNetworkInterfaceConfiguration(
                name="nic", primary=True, delete_option="Delete", network_security_group=models.SubResource(id=nsg),
                ip_configurations=[models.VirtualMachineNetworkInterfaceIPConfiguration(name="ip", subnet=models.SubResource(id=subnet))])],
        ),
        diagnostics_profile=models.DiagnosticsProfile(boot_diagnostics=models.BootDiagnostics(enabled=True)),
        user_data="I2Nsb3VkLWNvbmZpZwo=",
    )


refused("InvalidParameter", vms.begin_create_or_update, group, "vm", model("Standard_None"))
made = vms.begin_create_or_update(group, "by-python", model("Standard_D2s_v5")).result()
assert made.provisioning_state == "Succeeded" and made.tags == {"by": "azure-mgmt-compute"} and made.user_data is None, made
for n in range(5):
    vms.begin_create_or_update(group, f"other-{n}", model("Standard_D2s_v5")).result()
listed = [vm.name for vm in vms.list(group)]
assert sorted(listed) == ["by-python"] + [f"other-{n}" for n in range(5)], listed

shown = vms.get(group, "by-python", expand="instanceView")
assert shown.network_profile.network_interfaces[0].id and shown.vm_id == made.vm_id, shown
assert "PowerState/running" in [s.code for s in shown.instance_view.statuses], shown.instance_view
vms.begin_deallocate(group, "by-python").result()
assert "PowerState/deallocated" in [s.code for s in vms.get(group, "by-python", expand="instanceView").instance_view.statuses]
vms.begin_start(group, "by-python").result()
assert vms.retrieve_boot_diagnostics_data(group, "by-python").serial_console_log_blob_uri
for name in listed:
    vms.begin_delete(group, name).result()
assert not list(vms.list(group))
refused("ResourceNotFound", vms.get, group, "by-python")
vms.begin_delete(group, "by-python").result()
try:
    cloud("wrong").virtual_machines.get(group, "by-python")
    raise AssertionError("a wrong secret is right")
except PermissionError as error:
    assert "AADSTS7000215" in str(error), error
print("ok")
