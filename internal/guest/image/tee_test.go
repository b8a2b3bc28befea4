// SPDX-License-Identifier: Apache-2.0

package image

import "testing"

func TestKernelOfAConfidentialImage(t *testing.T) {
	old := map[string][]string{kernelMeta: {"linux-base", "linux-image-6.1.0-48-cloud-amd64"}}
	both := map[string][]string{kernelMeta: old[kernelMeta], confidentialMeta: {"linux-image-6.12.117+deb12-cloud-amd64"}}
	for name, c := range map[string]struct {
		confidential bool
		depends      map[string][]string
		want         string
	}{
		"default":                        {false, both, "linux-image-6.1.0-48-cloud-amd64"},
		"confidential":                   {true, both, "linux-image-6.12.117+deb12-cloud-amd64"},
		"confidential, lists are old":    {true, old, "linux-image-6.1.0-48-cloud-amd64"},
		"confidential, no Debian at all": {true, nil, ""},
	} {
		b := &builder{Options: Options{Confidential: c.confidential}}
		if got := newestKernel(c.depends, b.kernelMetas()); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestWhichImagesAttestByTEE(t *testing.T) {
	const with, without = "\nCONFIG_TSM_REPORTS=m\n", "\n# CONFIG_TSM_REPORTS is not set\n"
	for config, want := range map[string]bool{with: true, "\nCONFIG_TSM_REPORTS=y\n": true, without: false} {
		b := &builder{Options: Options{Confidential: true}, kernel: &kernel{config: []byte(config)}}
		if b.attestsByTEE() != want {
			t.Errorf("%q: want %v", config, want)
		}
	}
	if b := (&builder{kernel: &kernel{config: []byte(with)}}); b.attestsByTEE() {
		t.Error("the default image does, too")
	}
}
