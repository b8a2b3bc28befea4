# SPDX-License-Identifier: Apache-2.0
"""Writes the files of user-data as cloud-init does.

usage: oracle.py SOURCE [FOLDER]

SOURCE is a data source of cloud-init; those that read a disk or guest
information take it from FOLDER. The user-data has to pass cloud-init's own
schema, strictly. Files go where user-data says: run it where that is harmless.
"""

import os
import sys
import tempfile

from cloudinit import distros, helpers, user_data, util
from cloudinit.config import cc_write_files, schema
from cloudinit.sources import (
    DataSourceAliYun,
    DataSourceConfigDrive,
    DataSourceEc2,
    DataSourceGCE,
    DataSourceNoCloud,
    DataSourceOpenStack,
    DataSourceVMware,
)


def paths():
    folder = tempfile.mkdtemp()
    return helpers.Paths({"cloud_dir": folder, "run_dir": folder, "templates_dir": folder})


def source(kind, config):
    place = paths()
    distro = distros.fetch("debian")("debian", {}, place)
    return kind({"datasource": config}, distro, place)


def nocloud(folder):
    ds = source(DataSourceNoCloud.DataSourceNoCloud, {"NoCloud": {"fs_label": None}})
    ds.seed_dirs = [folder]
    if not ds._get_data():
        raise SystemExit("cloud-init takes no seed from " + folder)
    return ds.userdata_raw


def ec2(_):
    ds = source(DataSourceEc2.DataSourceEc2, {"Ec2": {}})
    ds._cloud_name = DataSourceEc2.CloudNames.AWS
    data = ds.crawl_metadata()
    if not ds._api_token:
        raise SystemExit("cloud-init used no token")
    return data["user-data"]


def aliyun(_):
    ds = source(DataSourceAliYun.DataSourceAliYun, {"AliYun": {}})
    ds._cloud_name = DataSourceEc2.CloudNames.ALIYUN
    return ds.crawl_metadata()["user-data"]


def gce(_):
    found = DataSourceGCE.read_md(
        address="http://metadata.google.internal/computeMetadata/v1/",
        url_params=source(DataSourceGCE.DataSourceGCE, {"GCE": {}}).get_url_params(),
        platform_check=False,
    )
    if not found["success"]:
        raise SystemExit(found["reason"])
    return found["user-data"]


def openstack(_):
    return DataSourceOpenStack.read_metadata_service("http://169.254.169.254")["userdata"]


def configdrive(folder):
    return DataSourceConfigDrive.read_config_drive(folder)["userdata"]


def vmware(folder):
    os.environ["VMX_GUESTINFO"] = "1"
    for name in ("userdata", "userdata.encoding"):
        with open(os.path.join(folder, name), encoding="ascii") as file:
            os.environ["VMX_GUESTINFO_" + name.replace(".", "_").upper()] = file.read()
    return DataSourceVMware.guestinfo_envvar("userdata")


SOURCES = {
    "nocloud": nocloud,
    "ec2": ec2,
    "aliyun": aliyun,
    "gce": gce,
    "openstack": openstack,
    "configdrive": configdrive,
    "vmware": vmware,
}


def cloud_config(text):
    """The only part of the user-data, as cloud-init tells parts apart."""
    message = user_data.UserDataProcessor(paths()).process(text)
    parts = [p for p in message.walk() if p.get_content_maintype() != "multipart"]
    if len(parts) != 1 or parts[0].get_content_type() != "text/cloud-config":
        raise SystemExit("not one cloud-config: %s" % [p.get_content_type() for p in parts])
    return util.load_yaml(util.decode_binary(parts[0].get_payload(decode=True)))


def main():
    text = SOURCES[sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else "")
    config = cloud_config(text)
    schema.validate_cloudconfig_schema(config, schema.get_schema(), strict=True)
    files = config.get("write_files", [])
    for file in files:
        file.setdefault("owner", "root:root")
    cc_write_files.write_files("oracle", files, "root:root")


main()
