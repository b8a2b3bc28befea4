# SPDX-License-Identifier: Apache-2.0
#
# A client that is not ours: Amazon's own for Python. It makes, finds, pages
# through, stops, starts and terminates an instance with an elastic address, and
# meets errors. Arguments: URL, file with the server's certificate, AMI, subnet,
# group.
import sys

import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError

url, ca, image, subnet, group = sys.argv[1:]
session = botocore.session.get_session()
ec2 = session.create_client(
    "ec2", endpoint_url=url, verify=ca, config=Config(retries={"max_attempts": 0}))


def refused(code, call, **parameters):
    try:
        call(**parameters)
    except ClientError as error:
        assert error.response["Error"]["Code"] == code, error
        return
    raise AssertionError(f"{code} was expected")


def names(kind):
    return [{"ResourceType": kind, "Tags": [{"Key": "Name", "Value": "by botocore"}]}]


run = dict(
    MinCount=1, MaxCount=1, ImageId=image, InstanceType="m6a.large", ClientToken="from-botocore", UserData="#cloud-config\n",
    NetworkInterfaces=[{"DeviceIndex": 0, "SubnetId": subnet, "Groups": [group], "AssociatePublicIpAddress": True}],
    BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 20, "VolumeType": "gp3"}}],
    MetadataOptions={"HttpTokens": "required"}, TagSpecifications=names("instance"),
)
refused("DryRunOperation", ec2.run_instances, **run, DryRun=True)
refused("InvalidAMIID.NotFound", ec2.run_instances, **{**run, "ImageId": "ami-00000000"})
made = ec2.run_instances(**run)["Instances"][0]
identity = made["InstanceId"]
assert made["PrivateIpAddress"] and made["State"]["Name"] in ("pending", "running"), made
assert ec2.run_instances(**run)["Instances"][0]["InstanceId"] == identity
refused("IdempotentParameterMismatch", ec2.run_instances, **{**run, "InstanceType": "m6a.xlarge"})

ec2.get_waiter("instance_running").wait(InstanceIds=[identity])
for _ in range(6):
    ec2.run_instances(**{**run, "ClientToken": ""})
pages = ec2.get_paginator("describe_instances").paginate(
    Filters=[{"Name": "tag:Name", "Values": ["by*"]}], PaginationConfig={"PageSize": 5})
listed = [i["InstanceId"] for page in pages for r in page["Reservations"] for i in r["Instances"]]
assert len(listed) == 7 and identity in listed, listed

nic = ec2.describe_instances(InstanceIds=[identity])["Reservations"][0]["Instances"][0]["NetworkInterfaces"][0]
address = ec2.allocate_address(Domain="vpc", TagSpecifications=names("elastic-ip"))
ec2.associate_address(AllocationId=address["AllocationId"], NetworkInterfaceId=nic["NetworkInterfaceId"])
found = ec2.describe_addresses(Filters=[{"Name": "tag:Name", "Values": ["by botocore"]}])["Addresses"][0]
refused("InvalidIPAddress.InUse", ec2.release_address, AllocationId=address["AllocationId"])
ec2.disassociate_address(AssociationId=found["AssociationId"])
ec2.release_address(AllocationId=address["AllocationId"])

ec2.stop_instances(InstanceIds=[identity])
ec2.get_waiter("instance_stopped").wait(InstanceIds=[identity])
ec2.start_instances(InstanceIds=[identity])
ec2.get_waiter("instance_running").wait(InstanceIds=[identity])
assert "Linux version" in ec2.get_console_output(InstanceId=identity)["Output"]
assert ec2.describe_images(ImageIds=[image])["Images"][0]["State"] == "available"
assert ec2.describe_instance_types(InstanceTypes=[], Filters=[{"Name": "instance-type", "Values": ["m6a.*"]}])["InstanceTypes"]
ec2.terminate_instances(InstanceIds=listed)
ec2.get_waiter("instance_terminated").wait(InstanceIds=listed)
refused("InvalidInstanceID.NotFound", ec2.describe_instances, InstanceIds=["i-00000000"])
print("ok")
