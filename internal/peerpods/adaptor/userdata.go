// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/internal/peerpods/apf"
	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
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

// NormalInitdata returns base64 of gzip of TOML for either form that shims
// send, and "" for "".
func NormalInitdata(text string) (string, error) {
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
	if rec.Pooled { // the rest is its pod's
		return cloudinit.CloudConfig{WriteFiles: files}, nil
	}
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
		AwaitPod:        rec.Pooled,
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

// dockerConfig is the part of Docker's config.json that the guest reads.
type dockerConfig struct {
	Auths map[string]json.RawMessage `json:"auths"`
}

// authFile is an auth file with the bytes it was read from.
type authFile struct {
	text string
	dockerConfig
}

// parseAuthFile reads and checks a registry auth file.
func parseAuthFile(path string) (authFile, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return authFile{}, fmt.Errorf("auth file: %w", err)
	}
	if len(data) > MaxAuthFile {
		return authFile{}, fmt.Errorf("auth file %s has %d bytes; at most %d fit into a VM's user-data: keep only the registries that pods need", path, len(data), MaxAuthFile)
	}
	file := authFile{text: string(data)}
	if err := json.Unmarshal(data, &file.dockerConfig); err != nil || file.Auths == nil {
		return authFile{}, fmt.Errorf(`auth file %s is not JSON of the form {"auths":{"<registry>":{"auth":"..."}}}`, path)
	}
	return file, nil
}

// pullSecrets returns the credentials of the pod itself. They live in memory
// only, from here to the user-data.
func (s *Service) pullSecrets(ctx context.Context, rec *Record) []RegistryAuth {
	if s.opts.Cluster == nil {
		return nil
	}
	room := MaxAuthFile
	if info, err := os.Stat(s.opts.AuthFile); err == nil {
		room -= int(info.Size())
	}
	return s.opts.Cluster.PullSecrets(ctx, *rec, room)
}

// guestAuth returns the guest's auth file, in which the pod's own entries
// override the node's; empty when there is neither.
func (s *Service) guestAuth(pod []RegistryAuth) (string, error) {
	var file authFile
	if s.opts.AuthFile != "" {
		var err error
		if file, err = parseAuthFile(s.opts.AuthFile); err != nil {
			return "", err
		}
	}
	if len(pod) == 0 {
		return file.text, nil
	}
	auths := map[string]json.RawMessage{}
	maps.Copy(auths, file.Auths)
	for _, one := range pod {
		entry, err := json.Marshal(map[string]string{"auth": one.Auth})
		if err != nil {
			return "", err
		}
		auths[one.Registry] = entry
	}
	text, err := json.Marshal(dockerConfig{auths})
	return string(text), err
}

// maxRegistries bounds the list in bytes, since user-data is small.
const maxRegistries = 1024

var registryHost = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)

// checkRegistries refuses URLs: entries are hosts.
func checkRegistries(list []string) error {
	for _, one := range list {
		if one == apf.NodeItself {
			continue
		}
		_, port, _ := strings.Cut(one[strings.LastIndex(one, "]")+1:], ":")
		n, err := strconv.Atoi(port)
		if !registryHost.MatchString(one) || port != "" && (err != nil || n < 1 || n > 65535) {
			return fmt.Errorf("-insecure-registries (INSECURE_REGISTRIES): %q: want HOST, HOST:PORT or %s", shorten(one, 80), apf.NodeItself)
		}
	}
	if size := len(strings.Join(list, "\n")); size > maxRegistries {
		return fmt.Errorf("-insecure-registries (INSECURE_REGISTRIES): %d bytes; at most %d fit into a VM's user-data", size, maxRegistries)
	}
	return nil
}

// insecureRegistries returns the file with the operator's list for the guest; nil
// without any.
func (s *Service) insecureRegistries(ctx context.Context, network *podnetwork.Config) ([]cloudinit.WriteFile, error) {
	var list []string
	for _, one := range s.opts.InsecureRegistries {
		if one != apf.NodeItself {
			list = append(list, one)
			continue
		}
		node, err := s.nodeAddress(ctx)
		if err != nil {
			return nil, err
		}
		if !node.IsValid() && network != nil {
			node = network.WorkerNodeIP.Addr()
		}
		if node.IsValid() {
			host := node.Unmap().WithZone("").String() // as it stands in the name of an image
			if node.Unmap().Is6() {
				host = "[" + host + "]"
			}
			list = append(list, host)
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	slices.Sort(list)
	return []cloudinit.WriteFile{{Path: apf.InsecureRegistriesPath, Content: strings.Join(slices.Compact(list), "\n") + "\n"}}, nil
}
