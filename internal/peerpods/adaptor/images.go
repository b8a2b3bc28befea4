// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"fmt"
	"slices"
	"strings"
)

// checkPatterns wants each pattern of -pod-images to be a name, NAME* or *.
func checkPatterns(patterns []string) error {
	for _, p := range patterns {
		if strings.Contains(strings.TrimSuffix(p, "*"), "*") {
			return fmt.Errorf("-pod-images (POD_IMAGES): %q has a * that is not at its end: want a name, NAME* or *", shorten(p, 80))
		}
	}
	return nil
}

// allowImage checks the VM image that a pod names against the operator's list.
// Whoever chooses the image is root in a VM on the nodes' network without
// having to escape from a container, so by default no image may be named.
func (o *Options) allowImage(image string) error {
	if image == "" || slices.ContainsFunc(o.PodImages, func(p string) bool { return imageMatches(p, image) }) {
		return nil
	}
	allowed := "no pod may name one"
	if len(o.PodImages) > 0 {
		allowed = "allowed are " + shorten(strings.Join(o.PodImages, ", "), 200)
	}
	return invalid("annotation %s: VM image %q is not allowed, %s; leave the annotation out, or have the operator add the image to the adaptor's -pod-images (POD_IMAGES)",
		annotationImage, shorten(image, 80), allowed)
}

// imageMatches keeps a name with ".." from leaving the folder that NAME* is for.
func imageMatches(pattern, image string) bool {
	prefix, open := strings.CutSuffix(pattern, "*")
	switch {
	case !open:
		return image == pattern
	case prefix == "":
		return true
	}
	return strings.HasPrefix(image, prefix) && !slices.Contains(strings.Split(image, "/"), "..")
}
