// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/outrigger/outrigger/internal/apf"
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

// normalizeInitdata answers base64 of gzip of TOML for either form that shims
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

// readAuthFile reads and checks a registry auth file.
func readAuthFile(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("auth file: %w", err)
	}
	if len(data) > MaxAuthFile {
		return "", fmt.Errorf("auth file %s has %d bytes; at most %d fit into a VM's user-data: keep only the registries that pods need", path, len(data), MaxAuthFile)
	}
	var file struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if err := json.Unmarshal(data, &file); err != nil || file.Auths == nil {
		return "", fmt.Errorf(`auth file %s is not JSON of the form {"auths":{"<registry>":{"auth":"..."}}}`, path)
	}
	return string(data), nil
}

// userData is what the sandbox's VM is booted with.
func (s *Service) userData(rec *Record, id *Identity) (cloudinit.CloudConfig, error) {
	config, err := s.forwarderConfig(rec, id).Marshal()
	if err != nil {
		return cloudinit.CloudConfig{}, err
	}
	files := []cloudinit.WriteFile{{Path: apf.DefaultPath, Content: string(config)}}
	if s.opts.AuthFile != "" {
		auth, err := readAuthFile(s.opts.AuthFile)
		if err != nil {
			return cloudinit.CloudConfig{}, err
		}
		files = append(files, cloudinit.WriteFile{Path: guestAuthFile, Content: auth})
	}
	if initdata := firstNonEmpty(rec.Initdata, s.opts.Initdata); initdata != "" {
		files = append(files, cloudinit.WriteFile{Path: guestInitdata, Content: initdata})
	}
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

func firstNonEmpty(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
