// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// dockerConfig is the part of a Docker config.json that holds credentials
// themselves; helpers do not exist in the VM.
type dockerConfig struct {
	Auths map[string]authn.AuthConfig `json:"auths"`
}

// credentials returns who to be at repo: the entry for the longest path that
// leads to it (registry/namespace before registry), or nobody.
func credentials(file string, repo name.Repository) (authn.Authenticator, error) {
	if file == "" {
		return authn.Anonymous, nil
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return authn.Anonymous, nil
	}
	if err != nil {
		return nil, fmt.Errorf("registry credentials: %w", err)
	}
	var cfg dockerConfig
	if err := json.Unmarshal(data, &cfg); err != nil {
		// The parser's message can quote a secret.
		return nil, fmt.Errorf("registry credentials: %s is not a Docker config.json", file)
	}
	return cfg.find(repo), nil
}

func (c dockerConfig) find(repo name.Repository) authn.Authenticator {
	byPath := make(map[string]authn.AuthConfig, len(c.Auths))
	for key, auth := range c.Auths {
		byPath[authPath(key)] = auth
	}
	for path := repo.Name(); ; {
		if auth, ok := byPath[path]; ok {
			return authn.FromConfig(auth)
		}
		cut := strings.LastIndexByte(path, '/')
		if cut < 0 {
			return authn.Anonymous
		}
		path = path[:cut]
	}
}

// authPath returns a key of the file as "host[:port][/path]". Old files have URLs, and
// Docker Hub under several names.
func authPath(key string) string {
	key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	key = strings.TrimSuffix(key, "/")
	host, path, _ := strings.Cut(key, "/")
	if path == "v1" || path == "v2" {
		path = ""
	}
	if host == "docker.io" || host == "registry-1.docker.io" {
		host = name.DefaultRegistry
	}
	if path == "" {
		return host
	}
	return host + "/" + path
}
