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

	"github.com/pelletier/go-toml/v2"

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
	forwarder, err := s.forwarderConfig(rec, id)
	if err != nil {
		return cloudinit.CloudConfig{}, err
	}
	config, err := forwarder.Marshal()
	if err != nil {
		return cloudinit.CloudConfig{}, err
	}
	files := []cloudinit.WriteFile{{Path: apf.DefaultPath, Content: string(config)}}
	if rec.Pooled { // the rest is its pod's
		return cloudinit.CloudConfig{WriteFiles: files}, nil
	}
	initdata := cmp.Or(rec.Initdata, s.opts.Initdata)
	from, err := brokerOf(initdata)
	if err != nil {
		return cloudinit.CloudConfig{}, err
	}
	switch {
	case from.auths: // in place of the node's, which the VM would not read
	case forwarder.TLSServerIdentity != "" && len(auths) > 0:
		return cloudinit.CloudConfig{}, invalid("the pod has image pull secrets, and with -server-identity (SERVER_IDENTITY) user-data takes no secret: put them at the key broker, and image.authenticated_registry_credentials_uri into the cdh.toml of the initdata")
	default:
		auth, err := s.guestAuth(auths)
		if err != nil {
			return cloudinit.CloudConfig{}, err
		}
		if auth != "" {
			files = append(files, cloudinit.WriteFile{Path: guestAuthFile, Content: auth})
		}
	}
	if forwarder.TLSServerIdentity != "" && !from.broker {
		return cloudinit.CloudConfig{}, invalid("the VM's key is at a key broker (-server-identity, SERVER_IDENTITY), and the pod's initdata names none: put the [kbc] of a cdh.toml into it, or into -initdata (INITDATA)")
	}
	if initdata != "" {
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

// brings is what a VM gets from the broker that its initdata names.
type brings struct{ broker, auths bool }

// brokerOf reads initdata as far as user-data depends on it. The rest is the guest's affair.
func brokerOf(initdata string) (from brings, err error) {
	if initdata == "" {
		return from, nil
	}
	data, err := cloudinit.DecodeInitData(initdata)
	if err != nil {
		return from, err
	}
	var cdh struct {
		KBC struct {
			URL string `toml:"url"`
		} `toml:"kbc"`
		Image struct {
			AuthURI string `toml:"authenticated_registry_credentials_uri"`
		} `toml:"image"`
	}
	var aa struct {
		Tokens struct {
			KBS struct {
				URL string `toml:"url"`
			} `toml:"kbs"`
		} `toml:"token_configs"`
	}
	for file, into := range map[string]any{"cdh.toml": &cdh, "aa.toml": &aa} {
		if err := toml.Unmarshal([]byte(data.Data[file]), into); err != nil { // whose text quotes the file
			return from, invalid("the pod's initdata: %s: bad TOML, or a value of the wrong type", file)
		}
	}
	return brings{broker: cdh.KBC.URL != "" || aa.Tokens.KBS.URL != "", auths: cdh.Image.AuthURI != ""}, nil
}

func (s *Service) forwarderConfig(rec *Record, id *Identity) (*apf.Config, error) {
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
	if ca := s.opts.TLS.OwnCA; ca != nil && ca.ServerIdentity != "" {
		own, err := ca.read()
		if err != nil {
			return nil, fmt.Errorf("own CA: %w", err)
		}
		config.TLSServerIdentity, config.TLSClientCA = ca.ServerIdentity, own.CA
	}
	return config, nil
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
