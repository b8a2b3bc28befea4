// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The parts of objects that are read here.

type object struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
}

type pod struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		RuntimeClassName string `json:"runtimeClassName"`
		NodeName         string `json:"nodeName"`
		Containers       []struct {
			Name string `json:"name"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase                 string            `json:"phase"`
		Reason                string            `json:"reason"`
		Message               string            `json:"message"`
		Conditions            []condition       `json:"conditions"`
		InitContainerStatuses []containerStatus `json:"initContainerStatuses"`
		ContainerStatuses     []containerStatus `json:"containerStatuses"`
	} `json:"status"`
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func conditionOf(all []condition, kind string) *condition {
	i := slices.IndexFunc(all, func(c condition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &all[i]
}

type containerStatus struct {
	Name         string `json:"name"`
	Ready        bool   `json:"ready"`
	RestartCount int    `json:"restartCount"`
	State        struct {
		Waiting *struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"waiting"`
	} `json:"state"`
}

type event struct {
	Metadata       metav1.ObjectMeta `json:"metadata"`
	InvolvedObject struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
		UID  string `json:"uid"`
	} `json:"involvedObject"`
	Reason         string           `json:"reason"`
	Message        string           `json:"message"`
	Type           string           `json:"type"`
	Count          int              `json:"count"`
	FirstTimestamp metav1.Time      `json:"firstTimestamp"`
	LastTimestamp  metav1.Time      `json:"lastTimestamp"`
	EventTime      metav1.MicroTime `json:"eventTime"`
	Source         struct {
		Component string `json:"component"`
	} `json:"source"`
}

// lastSeen returns when an Event was last seen. Newer reporters set only eventTime.
func (e *event) lastSeen() time.Time {
	switch {
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.Metadata.CreationTimestamp.Time
}

type node struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		Capacity        map[string]string `json:"capacity"`
		Conditions      []condition       `json:"conditions"`
		RuntimeHandlers []struct {
			Name string `json:"name"`
		} `json:"runtimeHandlers"`
	} `json:"status"`
}

func (n *node) handles(handler string) bool {
	for _, h := range n.Status.RuntimeHandlers {
		if h.Name == handler {
			return true
		}
	}
	return false
}

// VMResource is what a pod VM counts as on its node.
const VMResource = "kata.peerpods.io/vm"

type daemonSet struct {
	Spec struct {
		Template struct {
			Spec struct {
				NodeSelector map[string]string `json:"nodeSelector"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
	Status struct {
		DesiredNumberScheduled int `json:"desiredNumberScheduled"`
		NumberReady            int `json:"numberReady"`
		UpdatedNumberScheduled int `json:"updatedNumberScheduled"`
	} `json:"status"`
}

type deployment struct {
	Spec struct {
		Replicas *int `json:"replicas"`
	} `json:"spec"`
	Status struct {
		ReadyReplicas int         `json:"readyReplicas"`
		Conditions    []condition `json:"conditions"`
	} `json:"status"`
}

type runtimeClass struct {
	Handler    string `json:"handler"`
	Scheduling *struct {
		NodeSelector map[string]string `json:"nodeSelector"`
	} `json:"scheduling"`
}

type definition struct {
	Spec struct {
		Versions []struct {
			Name             string `json:"name"`
			Served           bool   `json:"served"`
			Storage          bool   `json:"storage"`
			SelectableFields []struct {
				JSONPath string `json:"jsonPath"`
			} `json:"selectableFields"`
			Subresources map[string]any `json:"subresources"`
		} `json:"versions"`
	} `json:"spec"`
	Status struct {
		Conditions []condition `json:"conditions"`
	} `json:"status"`
}

type webhookConfiguration struct {
	Webhooks []webhookEntry `json:"webhooks"`
}

type webhookEntry struct {
	Name          string `json:"name"`
	FailurePolicy string `json:"failurePolicy"`
	ClientConfig  struct {
		CABundle []byte `json:"caBundle"`
		Service  *struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"service"`
	} `json:"clientConfig"`
}
