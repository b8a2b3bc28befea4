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
