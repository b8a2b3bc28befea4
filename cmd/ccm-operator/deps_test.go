// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strings"
	"testing"
)

// sdks begin the names of packages that know a cloud: what the operator installs
// is data, and it calls no cloud.
var sdks = []string{
	"github.com/aws/", "github.com/Azure/", "cloud.google.com/", "google.golang.org/api/", "github.com/IBM/", "github.com/IBM-Cloud/",
	"github.com/gophercloud/", "github.com/vmware/", "github.com/aliyun/", "github.com/alibabacloud-go/", "github.com/nutanix-cloud-native/",
	"github.com/digitalocean/", "github.com/moby/", "github.com/docker/", "k8s.io/cloud-provider-", "github.com/openshift/",
	"github.com/outrigger/outrigger/providers/",
}

// types are OpenShift's kinds that configure a cluster: they import nothing but Kubernetes' types.
const types = "github.com/openshift/api/config/v1"

// most is a tenth above what is linked today. A program of this kind that links
// clouds' SDKs has 1,471.
const most = 1200

func TestNoCloudSDK(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := strings.Fields(string(out))
	for _, p := range packages {
		for _, sdk := range sdks {
			if strings.HasPrefix(p, sdk) && p != types {
				t.Errorf("ccm-operator links %s", p)
			}
		}
	}
	if n := len(packages); n < 100 || n > most {
		t.Errorf("ccm-operator links %d packages, want up to %d", n, most)
	}
}
