//! The routes of the API, each declared together with its description, so that neither can change without the other.

use axum::handler::Handler;
use axum::middleware;
use axum::routing::{MethodFilter, any, on};
use http::Method;

use super::openapi::Operation;
use super::{AppState, cluster};

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

/// Routes and their descriptions.
#[derive(Debug, Default)]
pub(super) struct Routes {
    router: axum::Router<AppState>,
    described: Vec<DescribedRoute>,
}

/// A method of a path, and what describes it.
#[derive(Debug)]
pub(super) struct DescribedRoute {
    /// The path as the router has it, such as `/v1/models/{*id}`.
    pub(super) path: &'static str,
    pub(super) method: Method,
    pub(super) describe: Describe,
}

impl Routes {
    pub(super) fn get<H, T>(self, path: &'static str, handler: H, describe: Describe) -> Self
    where
        H: Handler<T, AppState>,
        T: 'static,
    {
        let route = on(MethodFilter::GET, handler);
        self.add(path, route, &[Method::GET], describe)
    }

    pub(super) fn post<H, T>(self, path: &'static str, handler: H, describe: Describe) -> Self
    where
        H: Handler<T, AppState>,
        T: 'static,
    {
        let route = on(MethodFilter::POST, handler);
        self.add(path, route, &[Method::POST], describe)
    }

    pub(super) fn put<H, T>(self, path: &'static str, handler: H, describe: Describe) -> Self
    where
        H: Handler<T, AppState>,
        T: 'static,
    {
        let route = on(MethodFilter::PUT, handler);
        self.add(path, route, &[Method::PUT], describe)
    }

    pub(super) fn delete<H, T>(self, path: &'static str, handler: H, describe: Describe) -> Self
    where
        H: Handler<T, AppState>,
        T: 'static,
    {
        let route = on(MethodFilter::DELETE, handler);
        self.add(path, route, &[Method::DELETE], describe)
    }

    /// A route for all methods that the path has no other route for.
    pub(super) fn any<H, T>(self, path: &'static str, handler: H, describe: Describe) -> Self
    where
        H: Handler<T, AppState>,
        T: 'static,
    {
        let own = self.described.iter().filter(|route| route.path == path);
        let own: Vec<&Method> = own.map(|route| &route.method).collect();
        let methods: Vec<Method> = FORWARDED
            .into_iter()
            .filter(|method| !own.contains(&method))
            .collect();
        self.add(path, any(handler), &methods, describe)
    }

    /// The same routes, whose requests are passed on to the replica that they concern.
    pub(super) fn passed_on(mut self, state: &AppState) -> Self {
        let layer = middleware::from_fn_with_state(state.clone(), cluster::pass_on);
        self.router = self.router.route_layer(layer);
        self
    }

    /// The router, and the descriptions in the order of the routes.
    pub(super) fn into_parts(self) -> (axum::Router<AppState>, Vec<DescribedRoute>) {
        (self.router, self.described)
    }

    fn add(
        mut self,
        path: &'static str,
        route: axum::routing::MethodRouter<AppState>,
        methods: &[Method],
        describe: Describe,
    ) -> Self {
        self.router = self.router.route(path, route);
        let described = methods.iter().map(|method| DescribedRoute {
            path,
            method: method.clone(),
            describe,
        });
        self.described.extend(described);
        self
    }
}
