// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"cmp"
	"context"
	"strings"

	"github.com/outrigger/outrigger/internal/peerpods/apf"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// Files that process-user-data writes in the VM, beside apf.DefaultPath.
const (
	guestAuthFile      = "/run/peerpod/auth.json"
	guestInitdata      = "/run/peerpod/initdata"
	guestScratchMarker = "/run/peerpod/scratch-space.marker"
)

// MaxAuthFile is the largest registry auth file in bytes that fits into the
// user-data of every cloud beside the rest.
const MaxAuthFile = 12288

// normalizeInitdata returns base64 of gzip of TOML for either form that shims
// send, and "" for "".
func normalizeInitdata(text string) (string, error) {
	if strings.TrimSpace(text) == "" {
		return "", nil
	}
	data, err := cloudinit.DecodeInitData(text)
	if err != nil {
		return "", err
	}
	return data.Encode()
}

// initdataDigest names initdata by its digest, as the guest measures it.
func initdataDigest(text string) string {
	if text == "" {
		return ""
	}
	data, err := cloudinit.DecodeInitData(text)
	if err != nil {
		return "" // checked where it came in
	}
	return data.Algorithm + ":" + data.Digest()
}

// userData returns the user-data of the sandbox's VM.
func (s *Service) userData(ctx context.Context, rec *Record, id *Identity, auths ...RegistryAuth) (cloudinit.CloudConfig, error) {
	config, err := s.forwarderConfig(rec, id).Marshal()
	if err != nil {
		return cloudinit.CloudConfig{}, err
	}
	files := []cloudinit.WriteFile{{Path: apf.DefaultPath, Content: string(config)}}
	auth, err := s.guestAuth(auths)
	if err != nil {
		return cloudinit.CloudConfig{}, err
	}
	if auth != "" {
		files = append(files, cloudinit.WriteFile{Path: guestAuthFile, Content: auth})
	}
	if initdata := cmp.Or(rec.Initdata, s.opts.Initdata); initdata != "" {
		files = append(files, cloudinit.WriteFile{Path: guestInitdata, Content: initdata})
	}
	registries, err := s.insecureRegistries(ctx, rec.Network)
	if err != nil {
		return cloudinit.CloudConfig{}, err
	}
	files = append(files, registries...)
	if s.opts.ScratchSpace {
		files = append(files, cloudinit.WriteFile{Path: guestScratchMarker})
	}
	return cloudinit.CloudConfig{WriteFiles: files}, nil
}

func (s *Service) forwarderConfig(rec *Record, id *Identity) *apf.Config {
	config := &apf.Config{
		PodNetwork:      rec.Network,
		PodNamespace:    rec.PodNamespace,
		PodName:         rec.PodName,
		TLSMinVersion:   s.opts.TLS.MinVersion,
		TLSCipherSuites: s.opts.TLS.CipherSuites,
	}
	if id != nil {
		config.TLSServerKey = id.ServerKey
		config.TLSServerCert = id.ServerCert
		config.TLSClientCA = id.CA
	}
	return config
}
