// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// The statement of in-toto and the predicate of SLSA that are used
// (https://in-toto.io/Statement/v1, https://slsa.dev/spec/v1.0/provenance).
type (
	statement struct {
		Type          string     `json:"_type"`
		Subject       []resource `json:"subject"`
		PredicateType string     `json:"predicateType"`
		Predicate     predicate  `json:"predicate"`
	}
	resource struct {
		Name        string            `json:"name,omitempty"`
		URI         string            `json:"uri,omitempty"`
		Digest      map[string]string `json:"digest,omitempty"`
		Annotations map[string]any    `json:"annotations,omitempty"`
	}
	predicate struct {
		BuildDefinition buildDefinition `json:"buildDefinition"`
		RunDetails      runDetails      `json:"runDetails"`
	}
	buildDefinition struct {
		BuildType            string         `json:"buildType"`
		ExternalParameters   map[string]any `json:"externalParameters"`
		InternalParameters   map[string]any `json:"internalParameters"`
		ResolvedDependencies []resource     `json:"resolvedDependencies"`
	}
	runDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	}
)

const (
	provenanceName = "provenance.intoto.json"
	// buildType names the parameters; docs/release.md says what they are.
	buildType = "https://outrigger.dev/build/dist/v1"
)

// makeProvenance says of every file that is there what it was made of. There is
// no time in it but that of the sources.
func (b *builder) makeProvenance(ctx context.Context) error {
	sums, err := b.checksums()
	if err != nil {
		return err
	}
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		s.Subject = append(s.Subject, resource{Name: name, Digest: map[string]string{"sha256": sums[name]}})
	}
	compiler, err := b.run(ctx, nil, "go", "env", "GOVERSION")
	if err != nil {
		return err
	}
	s.Predicate.BuildDefinition = buildDefinition{
		BuildType: buildType,
		ExternalParameters: map[string]any{
			"version": b.source.version, "prefix": b.Prefix, "url": b.URL, "parts": b.Parts, "architectures": b.Architectures,
		},
		InternalParameters: map[string]any{
			"go": strings.TrimSpace(string(compiler)), "sourceDateEpoch": b.source.date.Unix(),
		},
		ResolvedDependencies: b.dependencies(),
	}
	s.Predicate.RunDetails.Builder.ID = b.Builder
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return writeBytes(filepath.Join(b.fresh, provenanceName), append(data, '\n'))
}

// dependencies are the sources, and the packages of Debian of which something
// is in the files. The Go modules are those of go.sum in the sources, and in the
// bills of materials.
func (b *builder) dependencies() []resource {
	var all []resource
	if b.source.commit != "" {
		sources := resource{URI: "git+https://" + modulePath, Digest: map[string]string{"gitCommit": b.source.commit}}
		if b.source.changed {
			sources.Annotations = map[string]any{"uncommittedChanges": true}
		}
		all = append(all, sources)
	}
	for _, key := range slices.Sorted(maps.Keys(b.materials)) {
		p := b.materials[key]
		r := resource{URI: fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s", p.name, url.QueryEscape(p.version), p.architecture)}
		if p.sha256 != "" {
			r.Digest = map[string]string{"sha256": p.sha256}
		}
		all = append(all, r)
	}
	return all
}
