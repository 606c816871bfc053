//! Routes as values. What a path is, whose it is and how its requests are treated is said where its handler stands, and
//! nowhere else.

use std::collections::HashMap;

use axum::extract::{MatchedPath, Request};
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, any, on};
use http::Method;

use super::AppState;
use super::openapi::operation::Operation;
use super::probe::{Probes, is_below};
use crate::dialects::answer::Dialect;
use crate::dialects::end::ErrorForm;
use agent::metrics::RouteLabel;

/// Describes the operation of a route.
pub(super) type Describe = fn(Operation<'_>) -> Operation<'_>;

/// The methods under which a route for all methods is described.
const FORWARDED: [Method; 5] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
];

/// Routes with a common subject.
#[derive(Debug)]
pub(super) struct Group {
    /// What clients that are generated from the description call the group.
    pub(super) tag: &'static str,
    /// What the metrics and the log call it.
    pub(super) label: RouteLabel,
    /// The path and those below it belong to the group: they are not forwarded. Empty for none.
    pub(super) prefix: &'static str,
    /// The group only has probes; its paths are forwarded.
    pub(super) is_forwarded: bool,
    /// Answers `OPTIONS` of its prefix and the paths below with nothing, and `HEAD` of its paths that have no GET.
    pub(super) is_probed: bool,
    /// Further paths whose `HEAD` is answered with nothing.
    pub(super) head_probes: &'static [&'static str],
    /// The dialect in whose form errors are written; without one they have OpenAI's envelope.
    pub(super) dialect: Option<Dialect>,
    /// What `{id}` in its paths is.
    pub(super) id: &'static str,
    pub(super) endpoints: Vec<ApiEndpoint>,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            tag: "",
            label: RouteLabel::Other,
            prefix: "",
            is_forwarded: false,
            is_probed: false,
            head_probes: &[],
            dialect: None,
            id: "",
            endpoints: Vec::new(),
        }
    }
}

/// What a request concerns that another replica may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Concerned {
    /// The run that the path names.
    Run,
    /// The run of the session that the path names.
    Session,
}

/// Handlers of a path.
#[derive(Debug)]
pub(super) struct ApiEndpoint {
    /// The path as the router has it, such as `/v1/models/{*id}`.
    pub(super) path: &'static str,
    /// `None` for all that the path has no other route for.
    method: Option<Method>,
    pub(super) handler: MethodRouter<AppState>,
    pub(super) describe: Describe,
    label: Option<RouteLabel>,
    is_open: bool,
    pub(super) concerns: Option<Concerned>,
}

impl ApiEndpoint {
    pub(super) fn get<T: 'static>(
        path: &'static str,
        handler: impl Handler<T, AppState>,
        describe: Describe,
    ) -> Self {
        let handler = on(MethodFilter::GET, handler);
        Self::new(path, Some(Method::GET), handler, describe)
    }

    pub(super) fn post<T: 'static>(
        path: &'static str,
        handler: impl Handler<T, AppState>,
        describe: Describe,
    ) -> Self {
        let handler = on(MethodFilter::POST, handler);
        Self::new(path, Some(Method::POST), handler, describe)
    }

    pub(super) fn put<T: 'static>(
        path: &'static str,
        handler: impl Handler<T, AppState>,
        describe: Describe,
    ) -> Self {
        let handler = on(MethodFilter::PUT, handler);
        Self::new(path, Some(Method::PUT), handler, describe)
    }

    pub(super) fn delete<T: 'static>(
        path: &'static str,
        handler: impl Handler<T, AppState>,
        describe: Describe,
    ) -> Self {
        let handler = on(MethodFilter::DELETE, handler);
        Self::new(path, Some(Method::DELETE), handler, describe)
    }

    /// A route for all methods that the path has no other route for.
    pub(super) fn any<T: 'static>(
        path: &'static str,
        handler: impl Handler<T, AppState>,
        describe: Describe,
    ) -> Self {
        Self::new(path, None, any(handler), describe)
    }

    fn new(
        path: &'static str,
        method: Option<Method>,
        handler: MethodRouter<AppState>,
        describe: Describe,
    ) -> Self {
        Self {
            path,
            method,
            handler,
            describe,
            label: None,
            is_open: false,
            concerns: None,
        }
    }

    /// The route with its own label instead of the label of its group.
    pub(super) fn labelled(mut self, label: RouteLabel) -> Self {
        self.label = Some(label);
        self
    }

    /// The route for everybody: it needs no key and no allowed host.
    pub(super) fn open(mut self) -> Self {
        self.is_open = true;
        self
    }

    /// The route, with the thing that its requests concern: they are passed on to the replica that has it.
    pub(super) fn concerning(mut self, concerned: Concerned) -> Self {
        self.concerns = Some(concerned);
        self
    }
}

/// How requests of a route are treated before and after its handler.
#[derive(Debug, Clone, Copy)]
pub(super) struct RouteFacts {
    pub(super) label: RouteLabel,
    /// The form of errors, if it is not OpenAI's envelope.
    pub(super) error_form: Option<ErrorForm>,
    /// The route is public.
    pub(super) is_open: bool,
}

impl RouteFacts {
    /// Of a path without a route.
    const UNKNOWN: Self = Self {
        label: RouteLabel::Other,
        error_form: None,
        is_open: false,
    };
}

/// What is known of all routes.
#[derive(Debug, Default)]
pub(super) struct RouteTable {
    by_path: HashMap<&'static str, Vec<(Option<Method>, RouteFacts)>>,
    /// The beginnings of paths that are not forwarded, each with its form of errors.
    reserved: Vec<(&'static str, Option<ErrorForm>)>,
    pub(super) probes: Probes,
}

impl RouteTable {
    pub(super) fn new(groups: &[Group]) -> Self {
        let mut table = Self::default();
        for group in groups {
            let error_form = group.dialect.and_then(Dialect::error_form);
            if !group.prefix.is_empty() && !group.is_forwarded {
                table.reserved.push((group.prefix, error_form));
            }
            if group.is_probed {
                let of_head = group.head_probes.iter().copied();
                let of_head = of_head.chain(group.paths_without_get());
                table.probes.add(group.prefix, of_head);
            }
            for route in &group.endpoints {
                let facts = RouteFacts {
                    label: route.label.unwrap_or(group.label),
                    error_form,
                    is_open: route.is_open,
                };
                let of_path = table.by_path.entry(route.path).or_default();
                of_path.push((route.method.clone(), facts));
            }
        }
        table
    }

    /// What is known of the route of a request. Where its path has no route for its method, the first one of the path counts.
    pub(super) fn of(&self, request: &Request) -> RouteFacts {
        let method = match *request.method() {
            Method::HEAD => &Method::GET,
            ref method => method,
        };
        let path = request.extensions().get::<MatchedPath>();
        let routes = path.and_then(|path| self.by_path.get(path.as_str()));
        let mut routes = routes.into_iter().flatten();
        let first = routes.clone().next();
        let found = routes.find(|(of, _)| of.as_ref().is_none_or(|of| of == method));
        let facts = found
            .or(first)
            .map_or(RouteFacts::UNKNOWN, |(_, facts)| *facts);
        RouteFacts {
            // Below a dialect's path there may be no route.
            error_form: facts
                .error_form
                .or_else(|| self.reserved_for(request.uri().path())?.1),
            ..facts
        }
    }

    fn reserved_for(&self, path: &str) -> Option<&(&'static str, Option<ErrorForm>)> {
        let mut reserved = self.reserved.iter();
        reserved.find(|(prefix, _)| is_below(path, prefix))
    }

    /// Whether a decoded path belongs to this server.
    pub(super) fn is_reserved(&self, path: &str) -> bool {
        self.reserved_for(path).is_some()
    }
}

impl Group {
    /// Its routes, each under the methods that are described.
    pub(super) fn described(&self) -> impl Iterator<Item = (&ApiEndpoint, Method)> {
        self.endpoints.iter().flat_map(|route| match &route.method {
            Some(method) => vec![(route, method.clone())],
            None => {
                let has_own = |method: &Method| {
                    let mut routes = self.endpoints.iter();
                    routes.any(|other| {
                        other.path == route.path && other.method.as_ref() == Some(method)
                    })
                };
                let left = FORWARDED.into_iter().filter(|method| !has_own(method));
                left.map(|method| (route, method)).collect()
            }
        })
    }

    /// The paths of its routes that have no GET.
    pub(super) fn paths_without_get(&self) -> impl Iterator<Item = &'static str> {
        let has_get = |path: &str| {
            let mut routes = self.endpoints.iter();
            routes.any(|route| route.path == path && route.method == Some(Method::GET))
        };
        let paths = self.endpoints.iter().map(|route| route.path);
        paths.filter(move |path| !has_get(path))
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn a_path_below_a_dialect_has_its_form_of_errors() {
        let mut table = RouteTable::new(&crate::http::groups());
        table
            .reserved
            .push(("/v1/toy", Some(|failure| failure.envelope.clone())));
        for (path, has_form) in [
            ("/v1/toy", true),
            ("/v1/toy/x", true),
            ("/v1/toys", false),
            ("/v1/files/x", false),
            ("/", false),
        ] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            assert_eq!(table.of(&request).error_form.is_some(), has_form, "{path}");
        }
    }
}
