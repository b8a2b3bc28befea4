// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
)

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
