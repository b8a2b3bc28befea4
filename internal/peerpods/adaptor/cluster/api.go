// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/outrigger/outrigger/provider"
)

// requestTimeout bounds one request of the background.
const requestTimeout = 15 * time.Second

// ErrNone means that there is no cluster to be a part of.
var ErrNone = errors.New("neither a kubeconfig nor a service account is here")

// Config returns how to reach the API server: by the kubeconfig that
// KUBECONFIG names, else as a pod of the cluster. ErrNone when neither is
// there.
func Config(getenv func(string) string) (*rest.Config, error) {
	if path := getenv("KUBECONFIG"); path != "" {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			return nil, fmt.Errorf("KUBECONFIG: %w", err)
		}
		return config, nil
	}
	if getenv("KUBERNETES_SERVICE_HOST") == "" {
		return nil, ErrNone
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, fmt.Errorf("service account of this pod: %w", err)
	}
	return config, nil
}

// NodeConfig returns the node's own identity, which the API server lets read
// what the pods of this node use and nothing else. Of several paths, separated
// by commas, the first that is there counts; nil without any.
func NodeConfig(paths string) (*rest.Config, error) {
	for path := range strings.SplitSeq(paths, ",") {
		if path = strings.TrimSpace(path); path == "" {
			continue
		}
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue
		}
		return clientcmd.BuildConfigFromFlags("", path)
	}
	return nil, nil
}

// unreachable reports whether the API server could not be reached, as opposed
// to having refused.
func unreachable(err error) bool {
	if err == nil {
		return false
	}
	if !errors.As(err, new(apierrors.APIStatus)) {
		// An error with a class was made here, from a reply.
		return provider.Class(err) == provider.ErrUnknown && !errors.Is(err, errElsewhere)
	}
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}

// The parts of core/v1 objects that are read here. What is written is written
// by patches, so the other parts stay as they are.

type pod struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		NodeName         string      `json:"nodeName"`
		ImagePullSecrets []localName `json:"imagePullSecrets"`
	} `json:"spec"`
}

type localName struct {
	Name string `json:"name"`
}

type secret struct {
	Type string            `json:"type"`
	Data map[string][]byte `json:"data"`
}

type node struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		Capacity map[string]string `json:"capacity"`
	} `json:"status"`
}
