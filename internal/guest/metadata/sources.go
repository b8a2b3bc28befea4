// SPDX-License-Identifier: Apache-2.0

// Package metadata finds out which cloud a pod VM runs in and reads its
// user-data from that cloud: from a metadata service, a config drive or the
// hypervisor's guest information.
//
//	cloud      told by                        read from
//	aws        DMI vendor "Amazon EC2"        169.254.169.254, IMDSv2 token
//	azure      DMI asset tag, CPUID           169.254.169.254, userData, base64
//	gcp        DMI product, serial            metadata.google.internal
//	alibaba    DMI vendor "Alibaba Cloud"     100.100.100.200, token
//	ibm vpc    answers its own token request  169.254.169.254, identity token
//	openstack  DMI product, asset tag         config drive, 169.254.169.254
//	vsphere    DMI vendor "VMware, Inc."      guestinfo.userdata
//
// Everything that is read is bounded, and nothing follows a redirect or a
// proxy: the server at these addresses decides what the VM becomes.
package metadata

import "github.com/outrigger/outrigger/internal/guest/userdata"

// Source is [userdata.Source].
type Source = userdata.Source

// ConfigDriveDir is where podvm-init mounts OpenStack's config drive.
const ConfigDriveDir = "/media/config-2"

// Options say where to look.
type Options struct {
	// SeedDir and ConfigDriveDir are where those disks are mounted, if any.
	SeedDir        string
	ConfigDriveDir string
	// AllowV1 lets AWS and Alibaba Cloud answer without a token.
	AllowV1 bool
}

// Sources returns where user-data can be on a platform, in the order to ask.
// Disks come first: looking for one takes no time, and a hypervisor attaches
// one only on purpose.
func Sources(p Platform, o Options) []Source {
	openstack := service{"OpenStack metadata service", fetchOpenStack}
	sources := []Source{
		userdata.NoCloud(o.SeedDir),
		// A disk with the label config-2 ("Config drives" in Nova's user guide).
		userdata.File{Kind: "config drive", Dir: o.ConfigDriveDir, Path: "openstack/latest/user_data"},
	}
	switch p {
	case AWS:
		// As the EC2 user guide says, "Use IMDSv2". The older way, without a token, only if
		// allowed: whoever can make this VM send a request can use it.
		return append(sources, service{"EC2 metadata service", withToken(linkLocal, "X-aws-ec2-metadata-token", o.AllowV1)})
	case Azure:
		return append(sources, service{"Azure metadata service", fetchAzure})
	case GCP:
		return append(sources, service{"Compute Engine metadata service", fetchGCP})
	case Alibaba:
		// As the ECS user guide says, "security hardening mode", which is the only one where
		// instances are made with HttpTokens=required and works for the others too.
		return append(sources, service{"ECS metadata service", withToken(alibabaHost, "X-aliyun-ecs-metadata-token", o.AllowV1)})
	case OpenStack:
		return append(sources, openstack)
	case VSphere:
		return append(sources, vmwareSource{backdoor{}})
	}
	// Only IBM's service answers its token request; so Nova's plain path, which
	// identifies no service, comes after it.
	return append(sources, service{"IBM VPC metadata service", fetchIBM}, openstack)
}
