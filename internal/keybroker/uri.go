// SPDX-License-Identifier: Apache-2.0

package keybroker

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// maxURI bounds a resource's URI, in bytes.
const maxURI = 1024

var (
	uriScheme  = regexp.MustCompile(`^kbs(\+([a-z0-9][a-z0-9_-]{0,63}))?$`)
	uriSegment = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._~-]{0,254}$`)
)

// ResourcePath returns the path of a resource below [Prefix], with its query, from a URI such as kbs:///default/key/1 or
// kbs+pkcs11:///...: guest-components, attestation-agent/docs/RESOURCE_URI.md. The host of a URI does not count there either: a VM has one
// broker.
func ResourcePath(uri string) (string, error) {
	path, err := resourcePath(uri)
	if err != nil {
		return "", fmt.Errorf("resource %.128q: %w", uri, err)
	}
	return path, nil
}

func resourcePath(uri string) (string, error) {
	if len(uri) > maxURI {
		return "", fmt.Errorf("%d bytes, at most %d are read", len(uri), maxURI)
	}
	u, err := url.Parse(uri)
	if err != nil || u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return "", errors.New("not a URI of the form kbs:///REPOSITORY/TYPE/TAG")
	}
	scheme := uriScheme.FindStringSubmatch(u.Scheme)
	if scheme == nil {
		return "", errors.New("its scheme is neither kbs nor kbs+PLUGIN")
	}
	plugin := scheme[2]
	if plugin == "" {
		plugin = "resource"
	}
	segments := strings.Split(strings.TrimPrefix(u.Path, "/"), "/")
	if plugin == "resource" && len(segments) != 3 {
		return "", fmt.Errorf("%d parts of a path, want REPOSITORY/TYPE/TAG", len(segments))
	}
	for _, segment := range segments {
		if !uriSegment.MatchString(segment) {
			return "", errors.New("a part of its path is empty, or has other characters than letters, digits and ._~-")
		}
	}
	path := plugin + "/" + strings.Join(segments, "/")
	if u.RawQuery != "" {
		path += "?" + u.Query().Encode()
	}
	return path, nil
}
