// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/tags"
)

// Names of VMs are podvm- and 26 characters of a hash. Azure ignores the case
// of names, so the alphabet has only one.
const (
	vmPrefix = "podvm-"
	vmLength = len(vmPrefix) + 26
	lower32  = "abcdefghijklmnopqrstuvwxyz234567"
)

var (
	lowerBase32 = base32.NewEncoding(lower32).WithPadding(base32.NoPadding)
	sizeName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$`)
)

// vmName returns the name of a sandbox's VM.
func vmName(cluster, key string) string { return vmPrefix + hashOf(cluster, key) }

// hashOf returns what names of a key end with. Clusters that share a resource group do not
// share names.
func hashOf(cluster, key string) string {
	sum := sha256.Sum256([]byte(cluster + "\x00" + key))
	return lowerBase32.EncodeToString(sum[:])[:26]
}

// owner returns the VM that a disk, interface or address belongs to by its
// name, or nothing.
func owner(name string) string {
	name = strings.ToLower(name)
	if len(name) <= vmLength || !isVMName(name[:vmLength]) {
		return ""
	}
	return name[:vmLength]
}

// isVMName reports whether vmName can have returned a name.
func isVMName(name string) bool {
	return len(name) == vmLength && strings.HasPrefix(name, vmPrefix) && strings.Trim(name[len(vmPrefix):], lower32) == ""
}

// randomSuffix distinguishes the parts of a VM from those of an earlier one
// with its name, which may still be being deleted.
func randomSuffix() string {
	id := make([]byte, 4)
	rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

// ref is where a VM is.
type ref struct{ group, name string }

const vmType = "Microsoft.Compute/virtualMachines"

func (p *Provider) ref(name string) ref { return ref{p.cfg.ResourceGroup, name} }

// id returns the VM's resource id, which is the id of the instance.
func (p *Provider) id(r ref) string {
	return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/%s/%s", p.cfg.SubscriptionID, r.group, vmType, r.name)
}

// parseID returns false for what this provider can never have given.
func (p *Provider) parseID(id string) (ref, bool) {
	parts := strings.Split(id, "/")
	if len(parts) != 9 || parts[0] != "" {
		return ref{}, false
	}
	r := ref{parts[4], parts[8]}
	ok := strings.EqualFold(p.id(r), id) && isVMName(r.name) && groupName.MatchString(r.group)
	return r, ok
}

var foreignVM = regexp.MustCompile(`(?i)^/subscriptions/([-0-9a-f]{36})/resourceGroups/[-\w.()]{1,90}/providers/` + vmType + `/podvm-[a-z2-7]{26}$`)

// elsewhere returns the error about an instance of another subscription, which was not
// searched, so that the instance may exist. It is nil for a text that cannot be an id.
func (p *Provider) elsewhere(id string) error {
	parts := foreignVM.FindStringSubmatch(id)
	if parts == nil {
		return nil
	}
	return fmt.Errorf("%w: instance %s is in subscription %s, and -subscriptionid (AZURE_SUBSCRIPTION_ID) is %s",
		provider.ErrInvalidArgument, last(id), parts[1], p.cfg.SubscriptionID)
}

// resourceID returns the syntax of the ids of a type of resource, and of its
// sub-resources.
func resourceID(kind string, inner ...string) *regexp.Regexp {
	const name = `/[-\w.()]{1,90}`
	pattern := `(?i)^/subscriptions/[-0-9a-f]{36}/resourceGroups` + name + `/providers/` + regexp.QuoteMeta(kind) + name
	for _, part := range inner {
		pattern += "/" + part + name
	}
	return regexp.MustCompile(pattern + `$`)
}

// part returns the element of a resource id that follows the one of a name.
func part(id, name string) string {
	parts := strings.Split(id, "/")
	for i := range len(parts) - 1 {
		if strings.EqualFold(parts[i], name) {
			return parts[i+1]
		}
	}
	return ""
}

// last returns the last element of a resource id.
func last(id string) string { return id[strings.LastIndex(id, "/")+1:] }

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
		return nil, fmt.Errorf("%w: tag %s is %q, and the key is %q", provider.ErrInvalidArgument, provider.TagKey, given, key)
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
