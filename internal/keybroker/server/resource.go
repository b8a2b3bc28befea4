// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/outrigger/outrigger/internal/keybroker"
)

// attested returns key and claims of a request's session, or of the token that it brings.
func (s *Server) attested(r *http.Request) (*ecdsa.PublicKey, map[string]any, error) {
	_, found, err := s.find(r)
	if token, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); err != nil && is {
		return s.parse(token)
	}
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if found.key == nil {
		return nil, nil, &failure{http.StatusUnauthorized, "TokenNotFound", errors.New("this session has not attested")}
	}
	return found.key, found.input, nil
}

// parse verifies a token by this broker's key, never by the one in it.
func (s *Server) parse(token string) (*ecdsa.PublicKey, map[string]any, error) {
	bad := &failure{http.StatusUnauthorized, "TokenVerifierError", errors.New("the token is not one of this broker that is valid now")}
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return nil, nil, bad
	}
	payload, err := signed.Verify(s.cfg.Key.Public())
	if err != nil {
		return nil, nil, bad
	}
	var claims struct {
		Expires int64         `json:"exp"`
		PubKey  keybroker.JWK `json:"tee-pubkey"`
	}
	var input map[string]any
	if errors.Join(json.Unmarshal(payload, &claims), json.Unmarshal(payload, &input)) != nil || s.cfg.now().Unix() >= claims.Expires {
		return nil, nil, bad
	}
	key, err := claims.PubKey.Key()
	return key, input, err
}

// appraised returns what the claims of a policy's input say of the VM.
func appraised(input map[string]any) string {
	submods, _ := input["submods"].(map[string]any)
	cpu, _ := submods["cpu0"].(map[string]any)
	return fmt.Sprintf("the VM is %v: %v", cpu["ear.status"], cpu["outrigger.why"])
}

// resource gives a VM what the policy gives it.
func (s *Server) resource(r *http.Request) (*answer, error) {
	key, input, err := s.attested(r)
	if err != nil {
		return nil, err
	}
	names := []string{r.PathValue("repository"), r.PathValue("type"), r.PathValue("tag")}
	name := strings.Join(names, "/")
	if _, err := keybroker.ResourcePath("kbs:///" + name); err != nil {
		return nil, &failure{http.StatusNotFound, "InvalidRequestPath", err}
	}
	if err := s.policy.allow(r.Context(), input, names, r.URL.Query()); err != nil {
		return nil, &failure{http.StatusForbidden, "PolicyDeny", fmt.Errorf("resource %s: %w; %s", name, err, appraised(input))}
	}
	data, err := s.read(name)
	if err != nil {
		return nil, err
	}
	sealed, err := encrypt(data, key)
	if err != nil {
		return nil, err
	}
	s.cfg.Log.Info("resource", "name", name, "from", r.RemoteAddr)
	return &answer{"application/jwe", "", sealed}, nil
}

// read reads a resource's file, which is in the folder: os.Root follows no link out of it. Trustee says PluginInternalError of what it does
// not have.
func (s *Server) read(name string) ([]byte, error) {
	root, err := os.OpenRoot(s.cfg.Resources)
	if err != nil {
		return nil, fmt.Errorf("the folder of resources: %w", err)
	}
	defer root.Close()
	none := &failure{http.StatusNotFound, "PluginInternalError", fmt.Errorf("there is no resource %s", name)}
	info, err := root.Stat(name)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxResource) {
		err = fmt.Errorf("it is not a file of at most %d bytes", maxResource)
	}
	var data []byte
	if err == nil {
		data, err = root.ReadFile(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.cfg.Log.Error("resource", "name", name, "err", err)
	}
	if err != nil {
		return nil, none
	}
	return data, nil
}

// Resources returns the names of the resources that there are.
func (s *Server) Resources() (names []string, err error) {
	err = fs.WalkDir(os.DirFS(s.cfg.Resources), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.Count(name, "/") == 2 {
			names = append(names, name)
		}
		return err
	})
	slices.Sort(names)
	return names, err
}
