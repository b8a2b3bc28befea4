// SPDX-License-Identifier: Apache-2.0

package cloudconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
)

func onAzure(cloud configv1.AzureCloudEnvironment) Cluster {
	c := on(configv1.AzurePlatformType)
	c.Infrastructure.Status.PlatformStatus.Azure = &configv1.AzurePlatformStatus{CloudName: cloud}
	return c
}

func TestAzure(t *testing.T) {
	const shared = `"clusterServiceLoadBalancerHealthProbeMode":"shared"`
	for name, c := range map[string]struct {
		source  string
		cluster Cluster
		want    string
	}{
		"nothing said":          {`{}`, onAzure(""), `{"cloud":"AzurePublicCloud",` + shared + `,"vmType":"standard"}`},
		"no status of Azure's":  {`{}`, on(configv1.AzurePlatformType), `{"cloud":"AzurePublicCloud",` + shared + `,"vmType":"standard"}`},
		"public":                {`{}`, onAzure("AzurePublicCloud"), `{"cloud":"AzurePublicCloud",` + shared + `,"vmType":"standard"}`},
		"US government":         {`{}`, onAzure("AzureUSGovernmentCloud"), `{"cloud":"AzureUSGovernmentCloud",` + shared + `,"vmType":"standard"}`},
		"China":                 {`{}`, onAzure("AzureChinaCloud"), `{"cloud":"AzureChinaCloud",` + shared + `,"vmType":"standard"}`},
		"German":                {`{}`, onAzure("AzureGermanCloud"), `{"cloud":"AzureGermanCloud",` + shared + `,"vmType":"standard"}`},
		"same cloud, any case":  {`{"cloud":"AZUREpublicCLOUD"}`, onAzure(""), `{"cloud":"AzurePublicCloud",` + shared + `,"vmType":"standard"}`},
		"keys in any case":      {`{"Cloud":"AzurePublicCloud","VMType":"vmss"}`, onAzure(""), `{"cloud":"AzurePublicCloud",` + shared + `,"vmType":"vmss"}`},
		"vmType stays":          {`{"vmType":"vmss"}`, onAzure(""), `{"cloud":"AzurePublicCloud",` + shared + `,"vmType":"vmss"}`},
		"empty vmType":          {`{"vmType":""}`, onAzure(""), `{"cloud":"AzurePublicCloud",` + shared + `,"vmType":"standard"}`},
		"another probe":         {`{"clusterServiceLoadBalancerHealthProbeMode":"servicenodeport"}`, onAzure(""), `{"cloud":"AzurePublicCloud",` + shared + `,"vmType":"standard"}`},
		"what nobody knows":     {`{"future":{"n":12345678901234567890,"a":[1.50,"<&>"]}}`, onAzure(""), `{"cloud":"AzurePublicCloud",` + shared + `,"future":{"a":[1.50,"<&>"],"n":12345678901234567890},"vmType":"standard"}`},
		"stack":                 {`{"cloud":"x","future":1}`, onAzure("AzureStackCloud"), `{"cloud":"x","future":1,"vmType":"standard"}`},
		"stack keeps its type":  {`{"vmType":"vmss"}`, onAzure("AzureStackCloud"), `{"vmType":"vmss"}`},
		"null is as good as no": {`{"cloud":null,"vmType":null}`, onAzure(""), `{"cloud":"AzurePublicCloud",` + shared + `,"vmType":"standard"}`},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := PlatformOf(c.cluster.Infrastructure.Status.PlatformStatus)
			got, err := Transform(p, c.source, c.cluster)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestAzureErrors(t *testing.T) {
	for name, c := range map[string]struct {
		platform Platform
		source   string
		cluster  Cluster
		want     string
	}{
		"empty":                    {Azure, "", onAzure(""), "failed to unmarshal the cloud.conf: it is empty"},
		"stack, empty":             {AzureStackHub, " ", onAzure("AzureStackCloud"), "failed to unmarshal the cloud.conf: it is empty"},
		"null":                     {Azure, "null", onAzure(""), "line 1: it is null"},
		"a list":                   {Azure, "\n[]", onAzure(""), "line 2: it is a JSON array; a JSON object is expected"},
		"INI":                      {Azure, "[Global]\ncloud = x", onAzure(""), "line 1: "},
		"cut off":                  {Azure, "{\n\"cloud\":\n", onAzure(""), "line 3: unexpected EOF"},
		"bad comma":                {Azure, "{\n\"a\": 1,\n}", onAzure(""), "line 3: invalid character '}'"},
		"more after it":            {Azure, "{}\n{}", onAzure(""), "line 2: there is more after the JSON object"},
		"conflict":                 {Azure, `{"cloud":"AzureChinaCloud"}`, onAzure(""), `invalid user-provided cloud.conf: "cloud" field in user-provided cloud.conf conflicts with infrastructure object: it is "AzureChinaCloud", and that says "AzurePublicCloud"`},
		"unknown cloud":            {Azure, `{}`, onAzure("Moon"), `status.platformStatus.azure.cloudName: Unsupported value: "Moon": supported values: "AzurePublicCloud", "AzureUSGovernmentCloud"`},
		"a key twice":              {Azure, `{"cloud":"a","CLOUD":"b"}`, onAzure(""), `keys "CLOUD" and "cloud" are the same`},
		"a number":                 {Azure, `{"vmType":1}`, onAzure(""), `key "vmType": a string is expected`},
		"another platform":         {Azure, `{}`, on(configv1.AWSPlatformType), "invalid platform, expected CloudName to be AzurePublicCloud"},
		"stack for public":         {Azure, `{}`, onAzure("AzureStackCloud"), "invalid platform, expected CloudName to be AzurePublicCloud"},
		"public for stack":         {AzureStackHub, `{}`, onAzure(""), "invalid platform, expected CloudName to be AzureStackCloud"},
		"no platform":              {AzureStackHub, `{}`, Cluster{}, "invalid platform, expected CloudName to be AzureStackCloud"},
		"another platform's stack": {AzureStackHub, `{}`, on(configv1.GCPPlatformType), "invalid platform, expected CloudName to be AzureStackCloud"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Transform(c.platform, c.source, c.cluster)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %s", err, c.want)
			}
		})
	}
}
