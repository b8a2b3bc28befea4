// SPDX-License-Identifier: Apache-2.0

package signed

import (
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// identity is which names a signature may be for.
type identity struct {
	Type             string `json:"type"`
	DockerReference  string `json:"dockerReference"`
	DockerRepository string `json:"dockerRepository"`
	// Of remapIdentity, which is refused by its name.
	Prefix       string `json:"prefix"`
	SignedPrefix string `json:"signedPrefix"`
}

// Types of identities. The first is that of a requirement without one.
const (
	matchRepoDigestOrExact = "matchRepoDigestOrExact"
	matchExact             = "matchExact"
	matchRepository        = "matchRepository"
	exactReference         = "exactReference"
	exactRepository        = "exactRepository"
)

func (i *identity) check() error {
	if i == nil {
		return nil
	}
	switch i.Type {
	case matchRepoDigestOrExact, matchExact, matchRepository:
		return i.takes("", "")
	case exactReference:
		return i.takes(i.DockerReference, "")
	case exactRepository:
		return i.takes("", i.DockerRepository)
	}
	return fmt.Errorf("signedIdentity of type %.64q is not known here", i.Type)
}

func (i *identity) takes(reference, repository string) error {
	if *i != (identity{Type: i.Type, DockerReference: reference, DockerRepository: repository}) {
		return fmt.Errorf("signedIdentity %s has members of another type", i.Type)
	}
	var err error
	switch i.Type {
	case exactReference:
		var parsed claim
		if parsed, err = parseClaim(reference); err == nil && parsed.exact == "" {
			err = fmt.Errorf("%.256q has neither a tag nor a digest", reference)
		}
	case exactRepository:
		_, err = parseClaim(repository)
	}
	if err != nil {
		return fmt.Errorf("signedIdentity %s: %w", i.Type, err)
	}
	return nil
}

// allows returns nil if a signature for the name signed may be one of the image that was asked for.
func (i *identity) allows(asked name.Reference, signed string) error {
	claimed, err := parseClaim(signed)
	if err != nil {
		return fmt.Errorf("it is for the name %.256q, which is none: %w", signed, err)
	}
	kind := matchRepoDigestOrExact
	if i != nil {
		kind = i.Type
	}
	if i.matches(kind, asked, claimed) {
		return nil
	}
	advice := ""
	if claimed.exact == "" && claimed.repository == repositoryName(asked.Context()) {
		advice = `: it has no tag; signedIdentity {"type":"` + matchRepository + `"} takes it for all tags`
	}
	return fmt.Errorf("it is for %.256q, which %s does not let pass for %s%s", signed, kind, asked.Name(), advice)
}

func (i *identity) matches(kind string, asked name.Reference, claimed claim) bool {
	sameRepository := claimed.repository == repositoryName(asked.Context())
	switch kind {
	case matchRepoDigestOrExact:
		if _, byDigest := asked.(name.Digest); byDigest {
			return sameRepository
		}
		return claimed.exact == canonical(asked)
	case matchExact:
		return claimed.exact == canonical(asked)
	case matchRepository:
		return sameRepository
	case exactReference:
		want, err := parseClaim(i.DockerReference)
		return err == nil && want.exact != "" && claimed.exact == want.exact
	case exactRepository:
		want, err := parseClaim(i.DockerRepository)
		return err == nil && claimed.repository == want.repository
	}
	return false
}

// claim is a name in a signature or policy: unlike those of images it has a tag only if it says so.
type claim struct {
	repository string
	exact      string // with tag or digest, or empty
}

func parseClaim(text string) (claim, error) {
	reference, err := name.ParseReference(text)
	if err != nil {
		return claim{}, err
	}
	c := claim{repository: repositoryName(reference.Context())}
	if _, byDigest := reference.(name.Digest); byDigest || strings.HasSuffix(text, ":"+reference.Identifier()) {
		c.exact = canonical(reference)
	}
	return c, nil
}

// canonical returns a reference with its tag or digest, by the name of Docker Hub that policies have.
func canonical(reference name.Reference) string {
	separator := ":"
	if _, byDigest := reference.(name.Digest); byDigest {
		separator = "@"
	}
	return repositoryName(reference.Context()) + separator + reference.Identifier()
}

func repositoryName(repository name.Repository) string {
	if repository.RegistryStr() == name.DefaultRegistry {
		return "docker.io/" + repository.RepositoryStr()
	}
	return repository.Name()
}
