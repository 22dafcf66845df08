-- Run by the image of Postgres when its data directory is new: one role owns the tables of the audit
-- log, the other is the service's. `kafka-quota-service migrate` gives it INSERT and SELECT.
\getenv owner_password QUOTAS_OWNER_PASSWORD
\getenv service_password QUOTAS_SERVICE_PASSWORD
create role quotas_owner login password :'owner_password';
create role quotas_service login password :'service_password';
create database quotas owner quotas_owner;
revoke all on database quotas from public;
grant connect on database quotas to quotas_service;
