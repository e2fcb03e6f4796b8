// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/optionalapi"
)

// networkReports is a resource whose objects report the state of the networks to other clusters.
type networkReports struct {
	resource schema.GroupVersionResource
	// kind is the kind of the objects. The absence of the resource is recorded under this name.
	kind string
	// read returns the report of an object.
	read func(*unstructured.Unstructured) networkReport
}

// networkReport contains the fields of an object that determine the state of the network. It does not contain the
// message of a PeerNetwork, which a network provider may change with every check. Each change would cause a write to
// the ForeignCluster.
type networkReport struct {
	cluster, value, reason string
	generation             int64
	// refreshed is the time of the measurement.
	refreshed string
}

func connectionReports() networkReports {
	return networkReports{
		resource: networking.GroupVersion.WithResource("connections"), kind: networking.ConnectionKind,
		read: func(connection *unstructured.Unstructured) networkReport {
			value, _, _ := unstructured.NestedString(connection.Object, "status", "value")
			refreshed, _, _ := unstructured.NestedString(connection.Object, "status", "latency", "timestamp")
			return networkReport{cluster: connection.GetLabels()[wire.RemoteClusterIDLabel], value: value, refreshed: refreshed}
		},
	}
}

func peerNetworkReports() networkReports {
	return networkReports{
		resource: plugins.GroupVersion.WithResource("peernetworks"), kind: plugins.PeerNetworkKind,
		read: func(object *unstructured.Unstructured) networkReport {
			report := networkReport{cluster: object.GetName(), generation: object.GetGeneration()}
			declared := &plugins.PeerNetwork{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, declared); err != nil {
				return report
			}
			if connected := meta.FindStatusCondition(declared.Status.Conditions, plugins.ConnectedCondition); connected != nil {
				report.value, report.reason = string(connected.Status), connected.Reason
			}
			report.refreshed, _, _ = unstructured.NestedString(object.Object, "status", "checkedAt")
			return report
		},
	}
}

// watchNetworks returns a source that triggers the reconciliations of enqueue when the state of a network changes. The
// reconciliation reads the objects from the API server and not from a cache: a cache would still return measurements
// while the API server is down, and these measurements would become stale.
func (c *Controller) watchNetworks(mgr manager.Manager, reports networkReports, enqueue handler.EventHandler) (source.Source, error) {
	informer, err := optionalapi.NewInformer(mgr.GetConfig(), reports.resource, optionalapi.Options{})
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		informer.RunWithContext(ctx)
		return nil
	})); err != nil {
		return nil, fmt.Errorf("registering the watch of %s, %w", reports.resource.Resource, err)
	}
	present := handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			// The resource was not installed before.
			c.absent.recordAbsence(reports.kind, false, c.options.Clock.Now())
			enqueue.Create(ctx, e, queue)
		},
		UpdateFunc: enqueue.Update, DeleteFunc: enqueue.Delete,
	}
	changed := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return c.isNetworkChanged(reports, e.ObjectOld, e.ObjectNew) }}
	return &source.Informer{Informer: informer, Handler: present, Predicates: []predicate.Predicate{changed}}, nil
}

// isNetworkChanged reports whether an update of an object may change the state of the network. A gateway updates the
// time of its measurement every ten seconds. This only matters if the measurement was stale.
func (c *Controller) isNetworkChanged(reports networkReports, before, now client.Object) bool {
	old, isOld := before.(*unstructured.Unstructured)
	current, isCurrent := now.(*unstructured.Unstructured)
	if !isOld || !isCurrent {
		return true
	}
	was, is := reports.read(old), reports.read(current)
	isRefreshed := was.refreshed != is.refreshed
	was.refreshed = is.refreshed
	return was != is || isRefreshed && c.measured.wasStale(is.cluster, measurementName(reports.kind, current))
}

// measurementName returns the name under which the measurement in an object is recorded.
func measurementName(kind string, object client.Object) string {
	return kind + " " + object.GetNamespace() + "/" + object.GetName()
}
