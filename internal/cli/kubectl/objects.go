// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names that an installation has.
const (
	// RuntimeClass is the class of pods that run in VMs, and its handler.
	RuntimeClass = "kata-remote"
	// VMResource is what a pod VM counts as on its node.
	VMResource = "kata.peerpods.io/vm"

	configMapName = "peer-pods-cm"
	secretName    = "peer-pods-secret"
	// workerLabel marks the nodes that may have pod VMs.
	workerLabel = "node.kubernetes.io/worker"

	adaptorName    = "cloud-api-adaptor-daemonset"
	adaptorAccount = "cloud-api-adaptor"
	relayName      = "agent-relay"
	controllerName = "peerpod-ctrl"
	webhookName    = "peerpods-webhook"
	crdName        = "peerpods.confidentialcontainers.org"
)

// stuckAfter is how long a removal may take before somebody should look.
const stuckAfter = 10 * time.Minute

// The parts of objects that are read here. Pods, nodes and workloads have conditions of one type here.

type object struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
}

type pod struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		RuntimeClassName string          `json:"runtimeClassName"`
		NodeName         string          `json:"nodeName"`
		InitContainers   []initContainer `json:"initContainers"`
		Volumes          []corev1.Volume `json:"volumes"`
	} `json:"spec"`
	Status struct {
		Phase   string `json:"phase"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
		PodIP   string `json:"podIP"`
		PodIPs  []struct {
			IP string `json:"ip"`
		} `json:"podIPs"`
		Conditions            []metav1.Condition       `json:"conditions"`
		InitContainerStatuses []corev1.ContainerStatus `json:"initContainerStatuses"`
		ContainerStatuses     []corev1.ContainerStatus `json:"containerStatuses"`
	} `json:"status"`
}

type initContainer struct {
	Name          string                        `json:"name"`
	RestartPolicy corev1.ContainerRestartPolicy `json:"restartPolicy"`
}

// ready reports whether its containers are.
func (p *pod) ready() bool { return meta.IsStatusConditionTrue(p.Status.Conditions, "Ready") }

// named is a part of a list of which only the names are of interest.
type named struct {
	Name string `json:"name"`
}

// lastSeen returns when an Event was last seen. Newer reporters set only eventTime.
func lastSeen(e *corev1.Event) time.Time {
	switch {
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

type node struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		Capacity        map[string]string  `json:"capacity"`
		Conditions      []metav1.Condition `json:"conditions"`
		RuntimeHandlers []named            `json:"runtimeHandlers"`
	} `json:"status"`
}

// workload is a DaemonSet or a Deployment; each has only its own numbers.
type workload struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Replicas *int                 `json:"replicas"`
		Selector metav1.LabelSelector `json:"selector"`
		// UpdateStrategy is a DaemonSet's.
		UpdateStrategy struct {
			Type string `json:"type"`
		} `json:"updateStrategy"`
		Template struct {
			Spec struct {
				NodeSelector map[string]string `json:"nodeSelector"`
				Containers   []containerImage  `json:"containers"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration     int64              `json:"observedGeneration"`
		DesiredNumberScheduled int                `json:"desiredNumberScheduled"`
		NumberReady            int                `json:"numberReady"`
		UpdatedNumberScheduled int                `json:"updatedNumberScheduled"`
		ReadyReplicas          int                `json:"readyReplicas"`
		UpdatedReplicas        int                `json:"updatedReplicas"`
		Conditions             []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

type containerImage struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

// onDelete is the update strategy of what an update must not end, such as relays.
const onDelete = "OnDelete"

type definition struct {
	Spec struct {
		Versions []struct {
			Name             string         `json:"name"`
			Served           bool           `json:"served"`
			SelectableFields []selectable   `json:"selectableFields"`
			Subresources     map[string]any `json:"subresources"`
		} `json:"versions"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

type selectable struct {
	JSONPath string `json:"jsonPath"`
}
