// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
)

func capsOf(arch string, types ...string) string {
	var domains strings.Builder
	for _, t := range types {
		fmt.Fprintf(&domains, "<domain type='%s'/>", t)
	}
	return fmt.Sprintf(`<capabilities><host><cpu><arch>%[1]s</arch></cpu></host>
		<guest><os_type>hvm</os_type><arch name='i686'><domain type='kvm'/></arch></guest>
		<guest><os_type>hvm</os_type><arch name='%[1]s'>%[2]s</arch></guest></capabilities>`, arch, &domains)
}

func TestMachine(t *testing.T) {
	for _, tc := range []struct {
		caps, wanted string
		want         host
		class        error
		word         string
	}{
		{capsOf("x86_64", "qemu", "kvm"), typeAuto, host{"amd64", typeKVM}, nil, ""},
		{capsOf("x86_64", "qemu"), typeAuto, host{"amd64", typeQEMU}, nil, ""},
		{capsOf("aarch64", "qemu", "kvm"), typeQEMU, host{"arm64", typeQEMU}, nil, ""},
		{capsOf("s390x", "kvm"), typeAuto, host{"s390x", typeKVM}, nil, ""},
		{capsOf("x86_64", "qemu"), typeKVM, host{}, provider.ErrInvalidArgument, "-libvirt-domain-type"},
		{capsOf("x86_64"), typeAuto, host{}, provider.ErrInvalidArgument, "is QEMU installed"},
		{capsOf("ppc64le", "kvm"), typeAuto, host{}, provider.ErrInvalidArgument, "ppc64le"},
		{"<capabilities/>", typeAuto, host{}, provider.ErrInvalidArgument, "architecture"},
	} {
		f := newFakeDaemon()
		f.capsXML = tc.caps
		p := fakeProvider(t, f, func(c *Config) { c.DomainType = tc.wanted })
		got, err := p.machine(t.Context())
		switch {
		case tc.class == nil && (err != nil || *got != tc.want):
			t.Errorf("%s of %s: %+v, %v; want %+v", tc.wanted, tc.caps, got, err, tc.want)
		case !errors.Is(err, tc.class) || tc.class != nil && !strings.Contains(err.Error(), tc.word):
			t.Errorf("%s of %s: %v", tc.wanted, tc.caps, err)
		}
	}
}
