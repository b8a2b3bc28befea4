// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// credentials returns who to be at repo: the entry for the longest path that
// leads to it (registry/namespace before registry), or nobody.
func credentials(file string, repo name.Repository) (authn.Authenticator, error) {
	data, err := os.ReadFile(file)
	if file == "" || errors.Is(err, fs.ErrNotExist) {
		return authn.Anonymous, nil
	}
	if err != nil {
		return nil, fmt.Errorf("registry credentials: %w", err)
	}
	// The part that holds credentials themselves; helpers do not exist in the VM.
	var cfg struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if err := json.Unmarshal(data, &cfg); err != nil {
		// The parser's message can quote a secret.
		return nil, fmt.Errorf("registry credentials: %s is not a Docker config.json", file)
	}
	byPath := make(map[string]authn.AuthConfig, len(cfg.Auths))
	for key, auth := range cfg.Auths {
		byPath[authPath(key)] = auth
	}
	for at := repo.Name(); at != "."; at = path.Dir(at) {
		if auth, ok := byPath[at]; ok {
			return authn.FromConfig(auth), nil
		}
	}
	return authn.Anonymous, nil
}

// authPath returns a key of the file as "host[:port][/path]". Old files have URLs, and
// Docker Hub under several names.
func authPath(key string) string {
	key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	key = strings.TrimSuffix(key, "/")
	host, repo, _ := strings.Cut(key, "/")
	if repo == "v1" || repo == "v2" {
		repo = ""
	}
	if host == "docker.io" || host == "registry-1.docker.io" {
		host = name.DefaultRegistry
	}
	return path.Join(host, repo)
}
