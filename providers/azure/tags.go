// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"fmt"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/tags"
)

// Our own tags, besides the owner's.
const (
	// tagName is the instance's name for humans.
	tagName = "outrigger-name"
	// tagMaker is the creation that made the VM: of several that are at it only
	// the maker removes a VM that has failed.
	tagMaker = "outrigger-maker"
)

// Limits of Azure's tags: learn.microsoft.com, "Use tags to organize your Azure
// resources", Limitations.
const (
	maxTags     = 50
	maxTagName  = 512
	maxTagValue = 256
	badTagRunes = `<>%&\?/`
)

// checkTags refuses what Azure would, and names that differ only in case, of
// which Azure would keep one.
func checkTags(tags map[string]string) error {
	seen := map[string]string{}
	for name, value := range tags {
		if name == "" || len(name) > maxTagName || strings.ContainsAny(name, badTagRunes) {
			return fmt.Errorf("%w: tag name %.64q: Azure takes 1 to %d characters and none of %s", provider.ErrInvalidArgument, name, maxTagName, badTagRunes)
		}
		if len(value) > maxTagValue {
			return fmt.Errorf("%w: tag %s has %d characters, and Azure takes %d", provider.ErrInvalidArgument, name, len(value), maxTagValue)
		}
		if other, double := seen[strings.ToLower(name)]; double {
			return fmt.Errorf("%w: tags %s and %s: Azure ignores the case of their names", provider.ErrInvalidArgument, min(name, other), max(name, other))
		}
		seen[strings.ToLower(name)] = name
	}
	if len(tags) > maxTags {
		return fmt.Errorf("%w: %d tags, and Azure takes %d", provider.ErrInvalidArgument, len(tags), maxTags)
	}
	return nil
}

// tagsOf returns the tags of everything that belongs to an instance. The owner's tags
// win over the configured ones.
func (p *Provider) tagsOf(key, name string, owner map[string]string) (map[string]string, error) {
	if given := owner[provider.TagKey]; given != "" && given != key {
		return nil, fmt.Errorf("%w: tag %s is %q, and the sandbox id is %q", provider.ErrInvalidArgument, provider.TagKey, given, key)
	}
	all := tags.Merge(p.cfg.Tags, owner, map[string]string{provider.TagKey: key, tagName: name})
	return all, checkTags(all)
}

func pointers(tags map[string]string) map[string]*string {
	m := make(map[string]*string, len(tags))
	for name, value := range tags {
		m[name] = &value
	}
	return m
}

func values(tags map[string]*string) map[string]string {
	m := make(map[string]string, len(tags))
	for name, value := range tags {
		m[name] = deref(value)
	}
	return m
}

// deref returns the zero value for what the cloud left out.
func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
