// SPDX-License-Identifier: Apache-2.0

package cloudconfig

import "testing"

// TestSame: a form is not a difference, a value is.
func TestSame(t *testing.T) {
	for _, test := range []struct {
		p    Platform
		a, b string
		want bool
	}{
		{AWS, "[Global]\nZone = a\nVPC=b\n", "; made\n[global]\nVPC = b\nzone = \"a\"\n", true},
		{AWS, "[Global]\nNodeIPFamilies = ipv4\nNodeIPFamilies = ipv6\n", "[Global]\nNodeIPFamilies = ipv6\nNodeIPFamilies = ipv4\n", false},
		{AWS, "[Global]\nZone = a\n", "[Global]\nZone = A\n", false},
		{AWS, "[Global]\n[ServiceOverride \"1\"]\nURL = x\n", "[Global]\n[ServiceOverride \"2\"]\nURL = x\n", false},
		{OpenStack, "[Global]\nuse-clouds = true\n[LoadBalancer]\n", "[Global]\nuse-clouds         = true\n\n[LoadBalancer]\n", true},
		{OpenStack, "[Global]\n[LoadBalancer]\n", "[Global]\n", false},
		{OpenStack, "[Global]\n", "[Global\n", false},
		{Azure, `{"cloud":"AzurePublicCloud","vmType":"standard","userAssignedIdentityID":"","useInstanceMetadata":false}`, "{\n \"vmType\": \"standard\", \"Cloud\": \"AzurePublicCloud\"\n}", true},
		{Azure, `{"excludeMasterFromStandardLB":false}`, `{}`, false},
		{Azure, `{"useManagedIdentityExtension":true}`, `{}`, false},
		{Azure, `{"cloudProviderBackoffRetries":6}`, `{"cloudProviderBackoffRetries":6.0}`, false},
		{VSphere, "global:\n  user: \"\"\n  port: 0\nvcenter:\n  v:\n    server: v\n    datacenters: [d]\n", "vcenter: {v: {datacenters: [d], server: v}}\n", true},
		{VSphere, "vcenter: {v: {datacenters: [d, e]}}\n", "vcenter: {v: {datacenters: [e, d]}}\n", false},
		{GCP, "[global]\na = b\n", "[global]\na=b\n", false},
	} {
		if Same(test.p, test.a, test.b) != test.want || Same(test.p, test.b, test.a) != test.want {
			t.Errorf("%s: %q and %q: want %t", test.p, test.a, test.b, test.want)
		}
	}
}
